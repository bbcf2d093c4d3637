// SPDX-License-Identifier: Apache-2.0

// Package symbols looks up the kernel's functions and variables by name or by address: the
// kernel lists them by a BPF iterator where it has one, else /proc/kallsyms is read. Change
// it to read or to choose symbols in another way.
package symbols
