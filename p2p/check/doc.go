// SPDX-License-Identifier: Apache-2.0

// Package check is what every check is made of: a [Check] with its title, reason and remedy,
// the [Look] that carries it out, and the [Finding]s that it leaves. The checks themselves are
// in the packages below, one file a family; package checks lists them all.
//
// To add a check, write it in its family's file; to add something that checks of several
// families read, change this package.
package check
