// SPDX-License-Identifier: Apache-2.0

// Package lower makes work requests of transfers between layouts: it cuts the windows of
// both sides into pieces that one key covers, under the limits of a queue pair.
//
// Change pieces.go to cut memory in another way, and lower.go to put pieces into work requests in another way.
package lower
