// SPDX-License-Identifier: Apache-2.0

// Package uevent says when devices of the machine appear, go or change, by the kernel's messages. It says only
// that there was something: the caller looks. To look for one more kind of device, change subsystems.
//
// # In a container
//
// A pod without the host's network gets the messages of PCI functions, modules, DRM devices and uverbs devices, because
// uevent_net_broadcast_untagged() (lib/kobject_uevent.c) sends those to all network namespaces on
// uevent_sock_list, and uevent_net_init() puts each namespace there that belongs to the first user namespace. A pod
// of a user namespace of its own (hostUsers: false) gets none. Messages of the class "infiniband" have the
// network namespace of their RDMA device as a tag (ib_class in drivers/infiniband/core/device.c), and
// uevent_net_broadcast_tagged() sends them to that namespace alone: such a pod gets those of "infiniband_verbs"
// instead, which have no tag.
package uevent
