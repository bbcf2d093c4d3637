# SPDX-License-Identifier: Apache-2.0
#
# The virtual machine: testbed/README.md says how it works.

TESTBED := $(HOST_BUILD)/bin/testbed
CMD ?= uname -a; echo 'make vm CMD="..." runs a command here: try dmabuf-reg devices'
MACHINE ?= default
VMFLAGS ?=

# The command that lists what set-up downloads: testbed/README.md.
DOWNLOADS := cd testbed && CGO_ENABLED=0 go run -trimpath ./cmd/downloads

.PHONY: setup
setup: ## install what is missing, or print the command that does
	@BUILD=$(HOST_BUILD) testbed/setup.sh $(if $(GUEST_GO),$(ARCH))
	@BUILD=$(HOST_BUILD) testbed/emulator.sh $(ARCH)
	$(if $(GUEST_GO),@BUILD=$(HOST_BUILD) testbed/userland.sh $(ARCH))
	@$(DOWNLOADS) manifest -build $(HOST_BUILD)

.PHONY: versions
versions: ## print versions and hashes of what set-up has downloaded
	@$(DOWNLOADS) versions -build $(HOST_BUILD)

# Go's build cache decides whether there is anything to do.
.PHONY: testbed
testbed: setup ## build the test bed
	@mkdir -p $(BUILD)/bin
	@cd testbed && CGO_ENABLED=0 go build -trimpath -o $(TESTBED) ./cmd/testbed
	$(if $(GUEST_GO),@cd testbed && CGO_ENABLED=0 GOARCH=$(ARCH) go build -trimpath -o $(BUILD)/bin/testbed ./cmd/testbed)

.PHONY: fetch
fetch: testbed ## take the newest KERNEL that apt offers into the cache
	$(TESTBED) fetch -kernel $(KERNEL)

# The command reaches the shell through the environment, so that its quotes
# survive. Its status becomes make's own: testbed/makeexit.
ifneq ($(filter vm,$(MAKECMDGOALS)),)
VM_STATUS := $(BUILD)/vm-status-$(shell echo $$PPID)
MAKEEXIT := $(BUILD)/makeexit.so
ifneq ($(filter load,$(.FEATURES)),)
-load $(MAKEEXIT)
$(MAKEEXIT): testbed/makeexit/makeexit.c | setup
	@mkdir -p $(@D)
	@$(CC) -O2 -Wall -Wextra -shared -fPIC -o $@ $< || rm -f $@
endif
endif

# Builds the programs and modules that a user expects in the virtual machine. Its output
# goes to standard error: standard output is for the user's command alone.
.PHONY: vm-ready
vm-ready: testbed
	@$(TESTBED) fetch -kernel $(KERNEL) -if-missing >&2
	@$(MAKE) --no-print-directory vm-build >&2

.PHONY: vm vm-run
vm: vm-run ## run CMD in a virtual machine with KERNEL (6.12, 7.2, 7.3 or 6.1) and MACHINE
	@$(makeexit $(VM_STATUS))status=$$(cat $(VM_STATUS) 2>/dev/null || echo 0); rm -f $(VM_STATUS); exit $$status

vm-run: export GPURDMA_CMD = $(value CMD)
vm-run: vm-ready
	@status=0; $(TESTBED) run -kernel $(KERNEL) -machine $(MACHINE) $(VMFLAGS) -- /bin/bash -c "$$GPURDMA_CMD" || \
		status=$$?; echo $$status >$(VM_STATUS)

.PHONY: vm-shell
vm-shell: vm-ready ## a shell in a virtual machine with KERNEL and MACHINE
	@$(TESTBED) shell -kernel $(KERNEL) -machine $(MACHINE) $(VMFLAGS) || [ $$? -lt 121 ]

.PHONY: vm-selftest
vm-selftest: testbed ## check what the test bed itself promises, on KERNEL
	@$(TESTBED) fetch -kernel $(KERNEL) -if-missing >/dev/null
	@testbed/selftest/host.sh
	@testbed/selftest/once.sh $(KERNEL)
