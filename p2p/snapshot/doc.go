// SPDX-License-Identifier: Apache-2.0

// Package snapshot writes the files of a machine that p2pcheck reads into one
// archive. It also reads such archives, which may be hostile, and bounds their
// size.
//
// [Take] collects the files, by the rules of package redact. [Read] reads an
// archive into memory. It unpacks nothing, and bounds the number of files,
// directories, bytes and levels. Take refuses a machine that Read would refuse as
// too large.
//
// To take more files, change package redact; to bound archives in another way, change limits.go.
package snapshot
