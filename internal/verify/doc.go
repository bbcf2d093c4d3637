// SPDX-License-Identifier: Apache-2.0

// Package verify has the sums with which a receiver checks the bytes of a write. The sender divides
// the bytes of the operation into blocks, and sums all of them, or some that it chooses at random.
// The sums go with the write's notification, in a trailer, which also names the memory that the
// bytes are written to. The receiver reads that memory, and compares.
//
// Change it to choose blocks in another way, to use another sum, or to say something else in the
// trailer; for the latter raise exchange.Version. The trailer is part of a message of package
// mailbox. Package workqueue makes the sums when a work is posted or begins, and package rails finds
// the memory of a trailer.
package verify
