// SPDX-License-Identifier: Apache-2.0

// Package datadirect asks mlx5's library for the DMA function of a NIC's card (Data
// Direct), and knows for whose memory mlx5 registers by it.
//
// Change it to name another GPU driver whose memory goes this way.
package datadirect
