// SPDX-License-Identifier: Apache-2.0

// Package link is a connection between serve and its clients, over one NIC or with a rail for each of several.
// To carry messages or count what has moved in another way, change this package.
package link
