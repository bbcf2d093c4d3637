// SPDX-License-Identifier: Apache-2.0

// Package archtest holds no code, only tests of the tree's own rules: which
// packages may import which, where unsafe may stand, what every package and file
// carries. ARCHITECTURE.md has the reasons for the rules.
//
// To add a rule, add a test.
package archtest
