// SPDX-License-Identifier: Apache-2.0

// Package abi is the interface between the BPF programs and the Go side: the layouts and
// numbers of bpf/record.h and bpf/state.h, and the decoding of events from the ring. Change
// it together with those headers; a test of package objects compares the two.
package abi
