// SPDX-License-Identifier: Apache-2.0

// Command bench compares the Go path with C programs that do the same, on
// whatever machine it runs (`make bench` runs it in the testbed).
//
// A pair of single measurements means nothing on a shared machine, so both
// sides run in one process tree, in turns of at most 100 ms, for at least 30
// rounds. bench divides the two sides' results in each round, and prints the median
// of these ratios with its spread. Beside it stands the noise band: the same ratio for
// the C program and a second copy of itself.
package main

// Each file has one comparison, and side_*.go the ways in which a side moves bytes. To compare one more thing, add a file,
// and name it in main.go.
