# SPDX-License-Identifier: Apache-2.0
#
# Tests in virtual machines of arm64. One boot is part of `make test`; `make test-arm64` runs all of them.

ARM64_KERNEL := 7.2
# The one boot runs the demo, which exports, registers, verifies, traces, finds the bytes in
# the BAR and predicts all that, and the tests that depend on the size of pages.
ARM64_BOOT := -peers '^demo$$' -run '^TestVM(PageSize|HugePages)$$' ./ibvfd
# `make test-arm64` leaves out the tests that `make test` leaves out for their length, and the tests
# that load doubles of the vendors' runtimes, or newer libraries and providers of amd64.
ARM64_DOUBLES := gpualloc/(cuda|levelzero|rocm) |canary TestVMVendor|ibvfd TestVMFlushNewerLibrary\b|cmd/hardware-test TestVMExportOfDouble\b|peers rxe-provider\b
# It leaves out re-registration in place, whose RDMA core is built for amd64 only.
ARM64_INPLACE := (ibvfd|ibvfd/uverbs) TestVMInPlace|peers kernel-selftest-rereg\b
# It leaves out the two machines whose GPU and NIC are on the root bus: the kernel allows peer-to-peer
# through a host bridge of a known x86 only, so the driver moves the GPU's memory to system memory.
ARM64_HOST_BRIDGE := peers vram-pair\b
ARM64_SKIP ?= $(VM_LONG)|$(ARM64_DOUBLES)|$(ARM64_INPLACE)|$(ARM64_HOST_BRIDGE)
ARM64_ALL = -cpus $(VM_CPUS) -parallel $(ARM64_MACHINES) -timeout $(VM_TIMEOUT) -skip '^($(ARM64_SKIP))' $(VMTESTFLAGS)
ARM64_MACHINES ?= 2
ARM64_TALLY := $(HOST_BUILD)/testbed/arm64/tally

.PHONY: arm64-boot
arm64-boot: ## boot arm64 once: the demo, and the tests that depend on the size of pages
	@$(MAKE) --no-print-directory arm64-run ARCH=arm64 KERNEL=$(ARM64_KERNEL) ARM64_ONE=yes

.PHONY: test-arm64
test-arm64: setup ## run the VM tests on arm64, in pages of PAGES (16k, or 4k)
	@$(MAKE) --no-print-directory arm64-run ARCH=arm64 KERNEL=$(ARM64_KERNEL)

# With IF_AVAILABLE, a machine that cannot have the guest's root counts as skipped, and the
# script says why.
.PHONY: arm64-run
arm64-run:
	@mkdir -p $(dir $(ARM64_TALLY)); rm -f $(ARM64_TALLY) $(BUILD)/testbed/$(KERNEL)/tally; \
	status=0; BUILD=$(HOST_BUILD) testbed/userland.sh $(ARCH) || status=$$?; \
	if [ $$status -eq 77 ] && [ -n "$(IF_AVAILABLE)" ]; then \
		echo "Linux $(KERNEL) on arm64, NOT TESTED: 0 passed, 0 failed, 1 skipped" | tee $(ARM64_TALLY); exit; \
	fi; \
	[ $$status -eq 0 ] && $(MAKE) --no-print-directory vm-ready || exit; \
	$(TESTBED) test -kernel $(KERNEL) -patched-rxe $(if $(ARM64_ONE),$(ARM64_BOOT),$(ARM64_ALL)) || status=$$?; \
	[ ! -e $(BUILD)/testbed/$(KERNEL)/tally ] || sed 's/^\(FAIL\|SKIP\|LEFT\) /\1 arm64 /' $(BUILD)/testbed/$(KERNEL)/tally >$(ARM64_TALLY); exit $$status
