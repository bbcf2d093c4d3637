// SPDX-License-Identifier: Apache-2.0

// Package klog finds fault reports in a Linux kernel's log: oopses, BUG and
// WARN, lockdep, refcount, KASAN, stalls, hung tasks, killed processes.
//
// To find another report, add its words to klog.go.
package klog
