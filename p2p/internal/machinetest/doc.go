// SPDX-License-Identifier: Apache-2.0

// Package machinetest writes small machines for the tests of package p2p and those below it.
//
// Change it to give machines another device.
package machinetest
