# SPDX-License-Identifier: Apache-2.0
#
# `make test`: everything that CI runs, in the order in which it is quickest to
# learn of a mistake.

# What is installed for it must be there: a test that misses a C header fails
# instead of skipping.
.PHONY: test
test: export GPURDMA_NEED_HEADERS := 1
test: ## set up and run all the tests: host, cross builds, and each kernel's VM
	@$(MAKE) --no-print-directory testbed
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory cross
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory glibc-check
	@$(MAKE) --no-print-directory vm-selftest
	@for k in $(KERNELS); do $(MAKE) --no-print-directory vm-test KERNEL=$$k || exit 1; done

# Our modules first, then, in a boot of its own, stock rxe, where the refusals
# are real: tests named TestVMStock.
.PHONY: vm-test
vm-test: ## run the VM tests and the peer suites on KERNEL
	@$(MAKE) --no-print-directory testbed
	@$(TESTBED) fetch -kernel $(KERNEL) -if-missing
	@$(MAKE) --no-print-directory kernel cprog build
	@$(TESTBED) test -kernel $(KERNEL) -patched-rxe
