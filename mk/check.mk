# SPDX-License-Identifier: Apache-2.0
#
# The kernel's own tools over the kernel's part: checkpatch and sparse. What
# was checked and has not changed is not checked again.

CHECK_KERNEL := 6.12
# With the kernel's version: another source has other tools and headers.
CHECK_SRC := $(wildcard $(BUILD)/kernels/$(CHECK_KERNEL)/version kernel/*/*.[ch] kernel/patches/rxe-dmabuf/*/*.patch kernel/*.sh kernel/softgpu/build.sh)

.PHONY: checkpatch sparse
checkpatch: $(BUILD)/checked/checkpatch ## checkpatch.pl --strict over the patches and the test drivers
sparse: $(BUILD)/checked/sparse ## sparse over the patched rdma_rxe and the test drivers

$(BUILD)/checked/checkpatch: $(CHECK_SRC) | testbed
	@$(TESTBED) fetch -kernel $(CHECK_KERNEL) -if-missing >/dev/null
	@BUILD=$(BUILD) kernel/checkpatch.sh $(CHECK_KERNEL)
	@mkdir -p $(@D) && touch $@

$(BUILD)/checked/sparse: $(CHECK_SRC) | testbed
	@$(TESTBED) fetch -kernel $(CHECK_KERNEL) -if-missing >/dev/null
	@SPARSE=1 BUILD=$(BUILD) kernel/build.sh $(CHECK_KERNEL)
	@SPARSE=1 BUILD=$(BUILD) kernel/softgpu/build.sh $(CHECK_KERNEL)
	@mkdir -p $(@D) && touch $@
