// SPDX-License-Identifier: Apache-2.0

// Package holdings knows which dma-bufs this process has registered, and with which
// NICs: an exporter may refuse a NIC because another NIC has pinned the buffer.
//
// Change it to remember one more fact of a registration.
package holdings
