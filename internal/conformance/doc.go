// SPDX-License-Identifier: Apache-2.0

// Package conformance tests what package gpurdma promises, by one suite that runs over networks
// in memory and over a NIC.
//
// To test one more promise, add a case to the suite.
package conformance
