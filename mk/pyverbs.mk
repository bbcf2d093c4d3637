# SPDX-License-Identifier: Apache-2.0
#
# rdma-core's own tests of ibv_rereg_dmabuf_mr(), whose patches are in
# kernel/patches/rdma-core: docs/explanation/kernel-rxe.md. Not part of `make test`.

# rdma-core's versions, and the kernels that have the method, from kernel/patches/rdma-rereg.
PYVERBS_VERSIONS ?= 56 65
PYVERBS_KERNELS ?= 7.3 7.2
# A kernel without the method: there rdma-core has to skip the method's tests.
PYVERBS_ABSENT ?= 7.3
PYVERBS_BUILD = BUILD=$(BUILD) kernel/rxe-provider.sh $(call RDMA_CORE_SOURCE,$(1)) $(1)
# Installs the packages that the build of the Python module needs.
PYVERBS_SETUP = BUILD=$(BUILD) testbed/setup.sh pyverbs
define PYVERBS_NEWLINE


endef

.PHONY: pyverbs
pyverbs: ## build rdma-core's Python module and tests, with our patches
	@$(PYVERBS_SETUP)
	$(foreach v,$(PYVERBS_VERSIONS),@$(call PYVERBS_BUILD,$(v)) pyverbs$(PYVERBS_NEWLINE))
	@$(DOWNLOADS) manifest -build $(HOST_BUILD)

.PHONY: pyverbs-rereg
pyverbs-rereg: testbed pyverbs ## run rdma-core's tests of dma-bufs on the kernels that re-register them in place, and on one that does not
	@status=0; \
	for k in $(sort $(PYVERBS_KERNELS) $(PYVERBS_ABSENT)); do \
		$(TESTBED) fetch -kernel $$k -if-missing && \
		$(MAKE) --no-print-directory kernel softgpu KERNEL=$$k || exit 1; \
	done; \
	for k in $(PYVERBS_KERNELS); do \
		$(MAKE) --no-print-directory kernel-rereg KERNEL=$$k || exit 1; \
	done; \
	for v in $(PYVERBS_VERSIONS); do \
		for k in $(PYVERBS_KERNELS); do \
			$(TESTBED) run -again -kernel $$k -rereg -machine switch -timeout 30m -- \
				testbed/pyverbs/dmabuf.sh $(BUILD)/pyverbs/$$v in-place || status=1; \
		done; \
		for k in $(PYVERBS_ABSENT); do \
			$(TESTBED) run -again -kernel $$k -patched-rxe -machine switch -timeout 30m -- \
				testbed/pyverbs/dmabuf.sh $(BUILD)/pyverbs/$$v absent || status=1; \
		done; \
	done; \
	exit $$status

# The checks of rdma-core's CI. They need a build of all of rdma-core, which takes a while.
.PHONY: rdma-core-check
rdma-core-check: ## run rdma-core's own checks, and Debian's of the symbols, over it with our patches
	@BUILD=$(BUILD) testbed/setup.sh rdma-core-check
	$(foreach v,$(PYVERBS_VERSIONS),@$(call PYVERBS_BUILD,$(v)) check$(PYVERBS_NEWLINE))
