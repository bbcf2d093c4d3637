// SPDX-License-Identifier: Apache-2.0

// Package rma is the calls of libfabric's fi_rma(3), fi_msg(3) and fi_atomic(3) over an endpoint:
// each makes a work, adds the memory of its arguments, and posts it to a peer. Change it to add a
// variant of a call. Package request makes work requests of the memory.
package rma
