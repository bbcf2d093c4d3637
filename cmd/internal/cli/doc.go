// SPDX-License-Identifier: Apache-2.0

// Package cli is what the project's commands share: sizes on the command
// line, the JSON envelope, errors for people and for programs,
// progress, signals and exit codes.
//
// Each file has one of these. To share one more thing, add a file.
package cli
