// SPDX-License-Identifier: Apache-2.0

// Package doubles is what the tests of the vendors' runtimes share: choosing
// one of the libraries that `make doubles` builds or a real GPU's, reading a
// double's log of calls, and looking at exported memory. It is for tests.
//
// doubles.go chooses a library and reads its log; specs.go has tests that are the same for each runtime.
// Change specs.go to add such a test.
package doubles
