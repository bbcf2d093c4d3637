// SPDX-License-Identifier: Apache-2.0

// Package guarded copies from and to memory that can vanish.
//
// Change it to survive another signal.
package guarded
