// SPDX-License-Identifier: Apache-2.0

// Package request turns one operation into work requests: it takes the memory that the operation
// names, checks it, copies what has to be copied, and makes the work requests within the limits
// of a connection. Change it to take memory in another way, to pack or stage bytes in another
// way, or to use another opcode of the NIC. When the work requests are posted, and what their
// completions mean, is in package workqueue.
package request
