// SPDX-License-Identifier: Apache-2.0

// Package looktest looks at machines of testenv as p2pcheck does, for tests of what becomes of a run: reports and
// pages. To let tests see more of a look, change it.
package looktest
