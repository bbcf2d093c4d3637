// SPDX-License-Identifier: Apache-2.0

// Package guarded copies from and to memory that can vanish.
package guarded
