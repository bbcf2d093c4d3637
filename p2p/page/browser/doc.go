// SPDX-License-Identifier: Apache-2.0

// Package browser tests the pages of package page in a browser: `make test-page`. It is a Go module of its own, so
// that the library which drives the browser stays out of the requirements of the other modules.
//
// To test another part of the page, add a test here.
package browser
