// SPDX-License-Identifier: Apache-2.0

// Package checkpoint keeps what a node has given to pods in a file, because the kubelet asks to take it back
// by the claim's name alone, perhaps another process of the driver. To remember one more thing across restarts,
// add it here.
package checkpoint
