// SPDX-License-Identifier: Apache-2.0

// Package cmstream is a net.Conn over a queue pair that rdma_cm connects. The exchange by which
// endpoints connect runs over it as over TCP.
//
// Change dial.go to connect in another way, and stream.go to move the bytes in another way.
package cmstream
