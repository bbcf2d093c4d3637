// SPDX-License-Identifier: Apache-2.0

// Package loader loads the BPF programs into the kernel, attaches them to the functions that the
// kernel has, and closes them. Change it to watch another function, to attach in another way,
// or to follow modules that come and go.
package loader
