// SPDX-License-Identifier: Apache-2.0

// Package browser tests the page of `dmabuf-reg bench --html` in a browser: make test-bench-page. It is a Go module
// of its own, so that what drives the browser stays out of the library's requirements.
//
// To test another part of the page, add a test here.
package browser
