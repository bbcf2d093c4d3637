// SPDX-License-Identifier: Apache-2.0

// Package gpucheck has the checks of GPUs and their drivers: any vendor's (GPU), NVIDIA's (NV),
// AMD's (AMD), Intel's and others. To add one, write it into its family's file.
package gpucheck
