// SPDX-License-Identifier: Apache-2.0

package vm

// rdtsc is this processor's time stamp counter.
func rdtsc() uint64
