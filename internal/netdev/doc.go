// SPDX-License-Identifier: Apache-2.0

// Package netdev takes network devices of this network namespace down and up again, by rtnetlink.
// A device that goes down loses routes, IPv6 addresses and permanent neighbours; they are kept, and
// put back. The messages are those of include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h and
// neighbour.h.
//
// To read or set another attribute of a device, change client.go; to keep more of what a device loses when it goes down,
// change kept.go.
package netdev
