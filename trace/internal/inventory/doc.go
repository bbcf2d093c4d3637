// SPDX-License-Identifier: Apache-2.0

// Package inventory finds out what the kernel had attached before tracing began: it lists the
// attachments of all buffers in passes, finds out by a second list which of them still exist,
// and narrows down which MR one belongs to. Change it to list or to compare in another way.
package inventory
