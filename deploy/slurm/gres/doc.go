// SPDX-License-Identifier: Apache-2.0

// Package gres reads the GPUs that slurmd has from gres.conf, in its order, and writes lines for gres.conf. Change
// it for another version of Slurm.
package gres
