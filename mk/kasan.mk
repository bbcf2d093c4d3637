# SPDX-License-Identifier: Apache-2.0
#
# The VM tests on a kernel that watches itself: KASAN, lock debugging, kmemleak,
# checks of the DMA and dma-buf interfaces. It has a build directory of its own,
# in which it has the name of its series: 6.12, or KASAN_KERNEL. Not part of `make test`: the kernel takes 11
# minutes and more to build on two processors, and everything is slower on it.

KASAN_KERNEL ?= 6.12
KASAN := $(BUILD)/kasan
# How many times longer tests may take there.
KASAN_SLOW ?= 10
# Vendors' drivers would take hours to build with KASAN; the tests that compare
# their BTF are about headers, not about our code. And the test that locks the kernel
# down would keep the test bed from reading kmemleak afterwards.
KASAN_SKIP ?= ^(drm TestVMLayoutOfGPUDrivers|trace TestVMLastLockdown)$$
# Reports of CONFIG_DMA_API_DEBUG that our modules do not cause. udmabuf keeps the
# mapping of the first CPU access, whatever the direction of the next one. dma-buf maps
# the same pages several times at once on purpose. Of such pages the check does not find
# the part that a heap syncs after ib_umem_dmabuf_map_pages has cut the mapped list to a
# registration's range. DRM's exporters, like ours, make segments longer than the 64 KiB
# that an ordinary network card says it takes. Our modules sync nothing themselves. If
# two processors print at once, the log can lose a report's first line.
KASAN_ALLOW := \
	-allow '^DMA-API: misc udmabuf: device driver syncs ' \
	-allow '^DMA-API: .*: device driver tries to sync DMA memory it has not allocated' \
	-allow '^DMA-API: .*: mapping sg segment longer than device claims to support' \
	-allow '^DMA-API: .*: cacheline tracking EEXIST, overlapping mappings' \
	-allow '^DMA-API: exceeded [0-9]+ overlapping mappings of cacheline' \
	-allow '^WARNING: (.* at )?kernel/dma/debug\.c:[0-9]+ (at )?(add_dma_entry|check_sync)'
KASANFLAGS ?=
KASAN_CPUS ?= 1
# A machine waits for a part of its time, so that two processors have enough to do with three. Two of one
# kind share its packages: in one machine the default kind would run alone for half of the time.
KASAN_MACHINES ?= 3
KASAN_SPLIT ?= 2

.PHONY: kasan-kernel
kasan-kernel: testbed ## build the debugging kernel and our modules for it
	@$(TESTBED) fetch -kernel $(KASAN_KERNEL) -if-missing
	@BUILD=$(BUILD) kernel/kasan.sh $(KASAN_KERNEL)
	@for d in bin doubles runtimes qemu; do mkdir -p $(BUILD)/$$d && ln -sfn ../$$d $(KASAN)/$$d; done
	@BUILD=$(KASAN) kernel/build.sh $(KASAN_KERNEL)
	@BUILD=$(KASAN) kernel/softgpu/build.sh $(KASAN_KERNEL)
	@[ ! -d kernel/patches/rdma-rereg/$(KASAN_KERNEL) ] || BUILD=$(KASAN) kernel/build.sh $(KASAN_KERNEL) rereg

KASAN_TEST = GPURDMA_BUILD=$(KASAN) $(TESTBED) test -kernel $(KASAN_KERNEL) -patched-rxe -slow $(KASAN_SLOW) \
	-cpus $(KASAN_CPUS) -parallel $(KASAN_MACHINES) -split $(KASAN_SPLIT) -skip '$(KASAN_SKIP)' $(KASAN_ALLOW)
# Tests that must run there and run nowhere else: they need a kernel with fault injection.
KASAN_ONLY = $(wildcard testbed/required/kasan/$(KASAN_KERNEL).txt)

.PHONY: kasan
kasan: kasan-kernel cprog build doubles ## run the VM tests on a kernel with KASAN and lock debugging
	@status=0; $(KASAN_TEST) $(if $(KASAN_ONLY),$(KASAN_FAULTS)) $(or $(KASANFLAGS),$(addprefix -require-also ,$(KASAN_ONLY))) || status=1; \
	$(if $(KASANFLAGS),,$(MAKE) --no-print-directory kasan-softgpu || status=1;) exit $$status

# The tests of eviction, revocation, removal and killed processes under load are in C.
.PHONY: kasan-softgpu
kasan-softgpu: kasan-kernel ## test the software GPU on that kernel
	@GPURDMA_BUILD=$(KASAN) GPURDMA_SLOW=$(KASAN_SLOW) $(MAKE) --no-print-directory \
		softgpu-vm KERNEL=$(KASAN_KERNEL) BUILD=$(KASAN) WATCHING=1

# The core warns if an exporter cannot map a buffer for the CPU. On this kernel fault injection makes it fail.
KASAN_FAULTS := -allow 'dma-buf\.c:[0-9]+.* dma_buf_vmap\+'

# The tests of re-registration in place alone. With GPURDMA_SOAK=1 they repeat as often as in `make soak`.
.PHONY: kasan-rereg
kasan-rereg: KASAN_KERNEL := 7.2
kasan-rereg: ## test re-registration in place on a kernel 7.2 with KASAN and fault injection
	@$(MAKE) --no-print-directory kasan-kernel cprog build doubles KASAN_KERNEL=$(KASAN_KERNEL)
	@$(KASAN_TEST) -require-also testbed/required/kasan/$(KASAN_KERNEL).txt -run '^TestVMInPlace' -peers '^kernel-selftest-rereg' $(KASAN_FAULTS) $(KASANFLAGS) \
		./ibvfd ./ibvfd/uverbs ./internal/conformance ./trace
