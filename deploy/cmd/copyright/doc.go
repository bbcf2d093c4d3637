// SPDX-License-Identifier: Apache-2.0

// Command copyright writes the copyright file of a package, in the machine-readable form of Debian (DEP-5):
// the licences of all Go modules of which packages are linked into its programs, and of Go itself.
// Change here what such a file says.
//
//	copyright -o FILE [-spdx FILE] ./cmd/p2pcheck...
//
// It runs in the directory of the module whose programs these are, and reads licences where go list says
// that the modules are: in the module cache. It takes GOOS, GOARCH and CGO_ENABLED from the environment, as
// the build does.
package main
