// SPDX-License-Identifier: Apache-2.0

// Command testbed boots Debian kernels in virtual machines and runs programs
// and tests in them. See the package documentation in the parent directory.
//
// Each subcommand has a file. test.go runs tests on several machines at a time; change durations.go to share
// them out in another way.
package main
