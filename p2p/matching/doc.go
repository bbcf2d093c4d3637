// SPDX-License-Identifier: Apache-2.0

// Package matching chooses pairs of a GPU and a NIC of which no two have a device in common. Change it to
// choose by another rule than as many pairs as possible, at the lowest sum of costs.
package matching
