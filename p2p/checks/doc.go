// SPDX-License-Identifier: Apache-2.0

// Package checks lists all checks, in the order in which they are shown, and carries them out.
// To add a family of checks, add it to the list here.
package checks
