# SPDX-License-Identifier: Apache-2.0
#
# The software GPU and the test importer: docs/softgpu.md says what they do.

# The series they compile for.
SOFTGPU_KERNELS := 7.2 6.12

.PHONY: softgpu
softgpu: ## build softgpu.ko and testimporter.ko of KERNEL
	@BUILD=$(BUILD) kernel/softgpu/build.sh $(KERNEL)

.PHONY: softgpu-vm
softgpu-vm: testbed softgpu kernel ## test the software GPU and the importer on KERNEL in the testbed
	@BUILD=$(BUILD) kernel/softgpu/tests/build.sh $(KERNEL)
	@$(TESTBED) run -kernel $(KERNEL) -patched-rxe -machine kernel/softgpu/tests/machine.json -timeout 15m -- \
		kernel/softgpu/tests/run.sh $(BUILD)/modules/$(KERNEL) $(BUILD)/modules/$(KERNEL)/softgpu-test $(TESTS)

# A series that Debian 12 cannot compile gets a root with the right compiler.
.PHONY: buildroot
buildroot: ## fetch KERNEL (7.2) from Debian's newer suites, with a build root
	@BUILD=$(BUILD) kernel/buildroot.sh $(KERNEL)
