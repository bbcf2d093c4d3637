#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make demo` runs inside the virtual machine.
set -u

cat <<TEXT

This is Linux $(uname -r) in a virtual machine, with software in place of the
hardware: graphics drivers without a GPU, and rxe0, an RDMA NIC made of a plain
network interface. On a machine with the real thing the same commands apply.

A dma-buf is memory that one driver exports, a GPU's for example, so that another
device can use it in place. Which exporters and which NICs are here?

\$ dmabuf-reg devices

TEXT
dmabuf-reg devices || exit

cat <<TEXT

Now the proof. From each exporter: allocate a buffer, register it with the NIC,
let the NIC write random bytes into it and read them back (RDMA WRITE and READ),
and compare every byte with what the CPU sees. Then the edges: first and last
byte, ranges across pages, registrations of a part of the buffer only, and
accesses that the NIC has to refuse.

\$ dmabuf-reg verify

TEXT
dmabuf-reg verify
