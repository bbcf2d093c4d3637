// SPDX-License-Identifier: Apache-2.0

// Package vendor is what the vendors' runtimes have in common: undoing, views
// that copy, room for descriptors, the size of a BAR.
//
// Change it to add what a second runtime needs, too.
package vendor
