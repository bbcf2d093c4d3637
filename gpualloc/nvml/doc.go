// SPDX-License-Identifier: Apache-2.0

// Package nvml lists NVIDIA GPUs with facts that only NVML knows: how much of
// BAR 1 is in use, whether confidential computing is on, which GPUs reach each
// other. It allocates no memory; package gpualloc/cuda does, without NVML.
//
// Only commands and checks import it, because it links go-nvml, which leaves
// NVML's functions unresolved until libnvidia-ml.so.1 is loaded. A program that
// is linked with -z now, the default of some distributions' compilers,
// therefore ends at its start on a machine without the driver. Link with
// -ldflags=-extldflags=-Wl,-z,lazy, as this project's Makefile does.
package nvml

// To read another fact of a GPU, change nvml.go and list_cgo.go, and the double in testdata.
