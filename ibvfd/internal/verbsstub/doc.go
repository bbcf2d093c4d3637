// SPDX-License-Identifier: Apache-2.0

// Package verbsstub holds C functions to put in the place of a provider's
// post_send, post_recv and poll_cq: some that return at once, to measure what
// the binding itself costs, and some that record and refuse, to test it.
//
// Change it to record another call.
package verbsstub
