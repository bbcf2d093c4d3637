#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# testbed: modules=stock processors=1
#
# How the distribution's own rdma_rxe refuses a dma-buf. Runs in the guest.
set -euo pipefail

export GPURDMA_STOCK_RXE=1
exec "$(dirname "$0")/kernel-selftest.sh"
