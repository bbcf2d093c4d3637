// SPDX-License-Identifier: Apache-2.0

// Package snapshot takes the files of a machine that p2pcheck reads into one
// archive. It also reads such archives, and bounds them: they may be hostile.
//
// [Take] gathers them, and package redact says what of each may leave the machine.
// [Read] has an archive in memory: nothing is unpacked, and its files, directories,
// bytes and depth are bounded. What Take refuses as too large, Read would refuse, too.
//
// To take more files, change package redact; to bound archives in another way, change limits.go.
package snapshot
