# SPDX-License-Identifier: Apache-2.0
#
# The main job, end to end, for somebody who has just cloned the repository.

# One after the other, whatever -j says: each needs what the one before made.
.PHONY: demo
demo: ## move and check bytes between a NIC and every kind of memory, in a VM
	@$(MAKE) --no-print-directory testbed
	@$(TESTBED) fetch -kernel $(KERNEL) -if-missing
	@$(MAKE) --no-print-directory kernel build
	@$(TESTBED) run -kernel $(KERNEL) -machine $(MACHINE) $(VMFLAGS) -- /bin/bash $(CURDIR)/cmd/dmabuf-reg/demo.sh
