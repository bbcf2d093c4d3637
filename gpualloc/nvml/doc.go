// SPDX-License-Identifier: Apache-2.0

// Package nvml lists NVIDIA GPUs with what only NVML knows: how much of BAR 1
// is taken, whether confidential computing is on, which GPUs reach each other. It
// allocates nothing; gpualloc/cuda does, and needs no NVML.
//
// It is a leaf for commands and checks, because of what it links. go-nvml
// leaves NVML's functions unresolved until libnvidia-ml.so.1 is loaded. A
// program linked with -z now, which some distributions' compilers do by
// themselves, therefore dies at its start on a machine without the driver:
// link with -ldflags=-extldflags=-Wl,-z,lazy, as this project's Makefile does.
package nvml

// To read another fact of a GPU, change nvml.go and list_cgo.go, and the double in testdata.
