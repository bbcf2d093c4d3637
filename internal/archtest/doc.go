// SPDX-License-Identifier: Apache-2.0

// Package archtest holds no code, only tests of the tree's own rules: who may
// import whom, where unsafe may stand, what every package and file carries.
// ARCHITECTURE.md says why the rules are what they are.
package archtest
