// SPDX-License-Identifier: Apache-2.0

// Package offers has the memory that the two sides of a connection offer each other over its
// exchange: under names, which one side exports and the other imports, or without a name, in
// order. A connection that outlives its link offers its names again over the next one. Change it
// to offer, withdraw, bound or find memory in another way. The bytes of an offer are made in
// package exchange, and the keys in package memory; package engine sends the messages.
package offers
