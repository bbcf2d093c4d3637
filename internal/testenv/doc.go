// SPDX-License-Identifier: Apache-2.0

// Package testenv lets tests say what they need and skip honestly.
//
// A test that needs a real kernel with the project's devices is named TestVM…
// and calls VM first. Outside the testbed it skips; inside, whatever this
// kernel ought to have must be there, or the test fails.
//
// To let tests ask for something else, add a file.
package testenv
