// SPDX-License-Identifier: Apache-2.0

// Command slurm-p2p gives jobs of Slurm the NICs next to their GPUs: it writes the lines of gres.conf, plans which
// NICs go with which GPU, and sets the variables of tasks. docs/how-to/slurm.md says how to use it.
//
// Each subcommand has a file. To add one, write a file, and name it in main.go.
package main
