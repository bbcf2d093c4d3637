// SPDX-License-Identifier: Apache-2.0

// Package paircheck has the checks of pairs: the kernel's and the drivers' decision (P2P), and
// what a live proof found (ACT). To add one, write it into its family's file.
package paircheck
