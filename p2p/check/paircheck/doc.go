// SPDX-License-Identifier: Apache-2.0

// Package paircheck has the checks of pairs: the decision of the kernel and the drivers (P2P), and
// the result of a live proof (ACT). To add a check, write it into its family's file.
package paircheck
