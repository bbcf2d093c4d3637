# SPDX-License-Identifier: Apache-2.0
#
# The kernel side: the patched rdma_rxe.

.PHONY: kernel
kernel: ## build the patched rdma_rxe.ko of KERNEL
	@BUILD=$(BUILD) kernel/build.sh $(KERNEL)
