// SPDX-License-Identifier: Apache-2.0

// Package tab drives a browser for the tests of this repository's pages. A page must not send a request,
// and its script must not fail. To act on a page in another way, change it.
package tab
