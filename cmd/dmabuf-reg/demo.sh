#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# `make demo` runs this script inside the virtual machine.
set -u

cat <<TEXT

This is Linux $(uname -r) in a virtual machine, with software in place of the
hardware: graphics drivers without a GPU, and rxe0, an RDMA NIC made of a plain
network interface. On a machine with the real thing the same commands apply.

A dma-buf is memory that one driver exports, a GPU's for example, so that another
device can use it in place. Which exporters and which NICs are here?
TEXT

gpu=
if [ -e /run/gpurdma/pci/gpu0 ] && modprobe softgpu personality=amdgpu 2>/dev/null; then
	gpu=$(basename "$(realpath /run/gpurdma/pci/gpu0)")
	cat <<TEXT

Among them is $gpu, a software GPU: a PCI device whose memory is a BAR, with
a driver that behaves as amdgpu's does. rxe0 is below the same PCI switch; rxe1 is
not.
TEXT
fi

cat <<TEXT

\$ dmabuf-reg devices

TEXT
dmabuf-reg devices || exit

cat <<TEXT

Now the proof. From each exporter: allocate a buffer, register it with the nearest
NIC, let the NIC write random bytes into it and read them back (RDMA WRITE and
READ), and compare every byte with what the CPU sees. Then the edges: first and
last byte, ranges across pages, registrations of a part of the buffer only, and
accesses that the NIC has to refuse.
TEXT
if [ -n "$gpu" ]; then
	cat <<TEXT

That the bytes are right does not say where they are. So the NIC also writes a
fresh nonce, and bar-search, a C program that shares no code with dmabuf-reg, looks
for it in the memory of the PCI device; and --trace asks the kernel itself.
TEXT
	verify=(dmabuf-reg verify --trace --locate bar-search)
	echo -e "\n\$ dmabuf-reg verify --trace --locate bar-search\n"
else
	verify=(dmabuf-reg verify)
	echo -e "\n\$ dmabuf-reg verify\n"
fi
"${verify[@]}"
status=$?

if [ -n "$gpu" ]; then
	cat <<TEXT

The same GPU memory with rxe1, on a root port of its own: the kernel decides
whether a peer can reach the GPU from there. If not, the driver moves the
buffer to system memory and reports success all the same.

\$ dmabuf-reg verify --gpu drm:$gpu --nic rxe1 --case "whole buffer" --trace --locate bar-search

TEXT
	"${verify[@]}" --gpu "drm:$gpu" --nic rxe1 --case "whole buffer" || status=$?
	cat <<TEXT

p2pcheck predicts this. It says for each GPU and NIC what the kernel will decide
and what to change, and runs checks for what else breaks the path: it prints the
checks that fail first, and counts those that pass. This call leaves out the checks
that only find a virtual machine, and those of a program's libraries and limits.
TEXT
	p2pcheck=(p2pcheck --gpu softgpu --skip ENV,VM,LIB,LIM,CTR,K8S,NET)
else
	cat <<TEXT

Does a NIC reach a GPU's memory here, and if not, why? p2pcheck says it for each
pair, and checks what breaks the path. Here no GPU has memory of its own, so that
there is no pair to judge: the checks look at the machine.
TEXT
	p2pcheck=(p2pcheck)
fi
echo -e "\n\$ ${p2pcheck[*]}\n"
"${p2pcheck[@]}"
case $? in
0 | 1 | 3) ;; # not every pair is direct, and some facts of a virtual machine are unknown
*) status=1 ;;
esac
exit $status
