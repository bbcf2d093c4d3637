// SPDX-License-Identifier: Apache-2.0

// Package histogram counts times in memory that does not grow with their number.
//
// Change it for another precision.
package histogram
