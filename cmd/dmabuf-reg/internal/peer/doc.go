// SPDX-License-Identifier: Apache-2.0

// Package peer is what both sides of a connection say and do: requests and answers, and operations between
// the two buffers. To add a step of a client, change this package.
package peer
