// SPDX-License-Identifier: Apache-2.0

// Package stationtest makes stations and servers on a network in memory, for tests.
//
// Change it to make another pair of sides.
package stationtest
