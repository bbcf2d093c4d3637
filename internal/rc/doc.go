// SPDX-License-Identifier: Apache-2.0

// Package rc has the reliable connections of a device: a Link has two queue pairs, one for READs
// and one for all else, on a completion queue that it may share. A Device registers memory, and
// makes links and completion queues; Verbs is a device of this machine, which it uses through package ibvfd. A
// GIDSelector chooses the port and the GID. The device's asynchronous events end the links that
// they concern.
//
// link.go makes and moves the queue pairs, watch.go has the events. Change link_gid.go to choose a GID by
// another rule.
package rc
