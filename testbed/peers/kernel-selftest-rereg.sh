#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# testbed: modules=rereg processors=1 kernels=7.3,7.2
#
# The kernel's side of dma-buf memory regions with kernel/patches/rdma-rereg. Runs in the guest.
set -euo pipefail

exec "$(dirname "$0")/kernel-selftest.sh"
