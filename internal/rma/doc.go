// SPDX-License-Identifier: Apache-2.0

// Package rma has the calls of libfabric's fi_rma(3), fi_msg(3) and fi_atomic(3) over an
// endpoint: each makes a work, adds the memory of its arguments, and posts it to a peer. Change
// it to add a variant of a call. Package request checks the memory and makes the work requests.
package rma
