// SPDX-License-Identifier: Apache-2.0

// Package nodelist reads the lists of nodes that `dmabuf-reg mesh` measures: words of a command line, lines
// of a file, and Slurm's hostlists. To take another form of list, change this package.
package nodelist
