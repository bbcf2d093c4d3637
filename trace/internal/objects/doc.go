// SPDX-License-Identifier: Apache-2.0

// Package objects holds the compiled BPF programs. Their sources are in bpf/; change those,
// run `make generate` and commit the objects with them.
package objects
