// SPDX-License-Identifier: Apache-2.0

// Package eventfile waits in Go's poller for events of a descriptor that a C
// library owns and reads.
//
// Change it to wait in another way.
package eventfile
