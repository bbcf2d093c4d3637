// SPDX-License-Identifier: Apache-2.0

// Package ibdev lists the RDMA devices of a machine by its sysfs, without opening any
// of them: their names, drivers and PCI functions, their ports, and the GID and P_Key
// tables of these. [Nearest] says which device lies nearest to a GPU. It needs neither
// libibverbs nor privileges.
package ibdev

// To read another attribute of a device or a port, change attr.go and device.go.
