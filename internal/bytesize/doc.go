// SPDX-License-Identifier: Apache-2.0

// Package bytesize writes sizes the way error messages want them.
//
// Change it to write another unit.
package bytesize
