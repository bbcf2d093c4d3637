# SPDX-License-Identifier: Apache-2.0
#
# The software GPU and the test importer: docs/reference/softgpu.md says what they do.

# The kernel series that they compile for.
SOFTGPU_KERNELS := 7.% 6.12
SOFTGPU_VM = $(filter $(SOFTGPU_KERNELS),$(KERNEL))

.PHONY: softgpu
softgpu: ## build softgpu.ko and testimporter.ko of KERNEL, and iommufd.ko if its tests need one
	@BUILD=$(BUILD) kernel/softgpu/build.sh $(KERNEL)
	@BUILD=$(BUILD) kernel/iommufd.sh $(KERNEL)

.PHONY: softgpu-vm
softgpu-vm: testbed softgpu kernel ## test the software GPU and the importer on KERNEL in the testbed
	@BUILD=$(BUILD) kernel/softgpu/tests/build.sh $(KERNEL)
	@mkdir -p $(BUILD)/testbed/$(KERNEL)
	@$(TESTBED) run -again -kernel $(KERNEL) -patched-rxe -machine kernel/softgpu/tests/machine.json -timeout 15m \
		-allow 'dma-buf\.c:[0-9]+.* dma_buf_vmap\+' $(if $(WATCHING),$(KASAN_ALLOW)) -- \
		kernel/softgpu/tests/run.sh $(BUILD)/modules/$(KERNEL) $(BUILD)/modules/$(KERNEL)/softgpu-test $(TESTS) | \
		tee $(BUILD)/testbed/$(KERNEL)/softgpu-vm.log

# The failures and counts of this suite, in the words of the test bed's own, for the
# end of `make test`.
.PHONY: softgpu-tally
softgpu-tally:
	@[ ! -e $(BUILD)/testbed/$(KERNEL)/softgpu-vm.log ] || awk '/^FAIL / { print "FAIL $(KERNEL): the software GPU in C: " substr($$0, 6) } \
		/^testbed: .*; once more / { p = f = s = 0; boots++ } \
		/^[0-9]+ tests: / { p += $$3; f += $$5; s += $$7 } END { printf \
		"the software GPU in C on %s, %d boots: %d passed, %d failed, %d skipped\n", "$(KERNEL)", boots + 1, p, f, s }' \
		$(BUILD)/testbed/$(KERNEL)/softgpu-vm.log >$(BUILD)/testbed/$(KERNEL)/tally-softgpu

# A series that Debian 12 cannot compile gets a root with the right compiler.
.PHONY: buildroot
buildroot: ## fetch KERNEL (7.2, 7.3) from Debian's newer suites, with a build root
	@BUILD=$(BUILD) kernel/buildroot.sh $(KERNEL)
	@$(DOWNLOADS) manifest -build $(HOST_BUILD)
