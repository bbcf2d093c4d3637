// SPDX-License-Identifier: Apache-2.0

// Package exampletest runs the examples, and checks that they stay as short as they are meant to
// be.
//
// Change it to run an example in another way, or to bound its length.
package exampletest
