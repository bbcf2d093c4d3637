// SPDX-License-Identifier: Apache-2.0

// Package bench is the subcommand bench: latency and bandwidth of kinds of memory in turns, and with --flap
// the losses while links are cut. To measure or draw something else, change this package.
package bench
