// SPDX-License-Identifier: Apache-2.0

// Package layout says where the test bed's files lie below the project's
// build directory. The Makefile's kernel targets use the same paths.
//
// Change it to move a file of the test bed.
package layout
