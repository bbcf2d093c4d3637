// SPDX-License-Identifier: Apache-2.0

// Command bench compares the Go path with C programs that do the same, on
// whatever machine it runs (`make bench` runs it in the testbed).
//
// A pair of single measurements means nothing on a shared machine, so both
// sides run in one process tree, in turns of at most 100 ms, for at least 30
// rounds. What is printed is the median over the rounds of the ratio within a
// round, with its spread, and beside it what the C program shows against a
// second copy of itself: the noise band.
package main
