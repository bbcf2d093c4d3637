// SPDX-License-Identifier: Apache-2.0

// Package check has the types that all checks use: a [Check] with its title, reason and remedy,
// the [Look] that runs it, and the [Finding]s that it returns. It also has the functions that checks
// of several families share. The checks themselves are in the packages below, and package checks
// lists them all.
//
// To add a check, write it in its family's file. To add a function that checks of several
// families need, change this package.
package check
