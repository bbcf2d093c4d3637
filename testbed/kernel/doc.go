// SPDX-License-Identifier: Apache-2.0

// Package kernel keeps unpacked Debian kernels, each with headers and source
// of the same version, below the project's build directory.
//
// To fetch from another suite, change newer.go; to keep another part of a package, change fetch.go.
package kernel
