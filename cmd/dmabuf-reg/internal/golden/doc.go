// SPDX-License-Identifier: Apache-2.0

// Package golden compares what commands print with files, for tests.
//
// Change it to compare what else varies between two runs.
package golden
