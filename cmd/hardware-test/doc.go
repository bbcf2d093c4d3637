// SPDX-License-Identifier: Apache-2.0

// Command hardware-test compares, on a machine with a GPU, the predictions of package p2p with
// the answers of the vendor's library and the results of registrations.
//
// `make hardware-test` builds and runs it. It takes a redacted snapshot, predicts from that
// snapshot alone, asks the libraries, proves pairs of GPUs and NICs, runs the tests of the
// vendors' runtimes, and writes all of it into one directory. Each of these runs in a process of
// its own that ends after a bound: libraries of GPUs may hang or crash.
//
// To ask a library for something more, change vendor.go. To compare it, change compare.go.
package main
