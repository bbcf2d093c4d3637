// SPDX-License-Identifier: Apache-2.0

// Package procfs reads the few files of procfs that say how much a process may
// still allocate. The root can be elsewhere, as in package sysfs.
//
// To read another file, add it to procfs.go.
package procfs
