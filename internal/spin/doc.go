// SPDX-License-Identifier: Apache-2.0

// Package spin waits busily, for a bounded time, for what mostly comes at once.
//
// Change it for another bound.
package spin
