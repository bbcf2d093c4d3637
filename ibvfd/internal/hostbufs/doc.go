// SPDX-License-Identifier: Apache-2.0

// Package hostbufs lists the host memory that a provider has allocated by ibv_alloc_buf,
// which ibv_reg_buf_mr registers.
//
// Change it to find a buffer by another key than its address.
package hostbufs
