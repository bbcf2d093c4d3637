// SPDX-License-Identifier: Apache-2.0

// Package witness traces the registrations of this process for --trace: where the bytes are, and which
// kernel function refused. To learn more from a trace, change this package.
package witness
