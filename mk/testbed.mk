# SPDX-License-Identifier: Apache-2.0
#
# The virtual machine: testbed/README.md says how it works.

TESTBED := $(BUILD)/bin/testbed
CMD ?= uname -a
MACHINE ?= default
VMFLAGS ?=

.PHONY: setup
setup: ## install what is missing, or print the command that does
	@testbed/setup.sh

# Go's build cache decides whether there is anything to do.
.PHONY: testbed
testbed: setup ## build the test bed
	@mkdir -p $(BUILD)/bin
	@cd testbed && CGO_ENABLED=0 go build -trimpath -o $(TESTBED) ./cmd/testbed

.PHONY: fetch
fetch: testbed ## take the newest KERNEL that apt offers into the cache
	$(TESTBED) fetch -kernel $(KERNEL)

.PHONY: vm
vm: export GPURDMA_CMD = $(value CMD)
vm: testbed ## run CMD in a virtual machine with KERNEL
	@$(TESTBED) run -kernel $(KERNEL) -machine $(MACHINE) $(VMFLAGS) -- /bin/bash -c "$$GPURDMA_CMD"

.PHONY: vm-shell
vm-shell: testbed ## a shell in a virtual machine with KERNEL
	@$(TESTBED) shell -kernel $(KERNEL) -machine $(MACHINE) $(VMFLAGS)
