# SPDX-License-Identifier: Apache-2.0
#
# checkpatch and sparse, the kernel's own tools, over the code of kernel/. They run again
# only after that code has changed. And p2pcheck's verdicts on the corpus of machines.

CHECK_KERNEL := 6.12
# The kernels' versions are in the list, as another source has other tools and headers.
CHECK_SRC := $(wildcard $(BUILD)/kernels/*/version kernel/*/*.[ch] kernel/patches/rxe-dmabuf/*/*.patch kernel/*.sh kernel/*.h kernel/softgpu/build.sh)

.PHONY: checkpatch sparse
checkpatch: $(BUILD)/checked/checkpatch ## checkpatch.pl --strict over the patches and the test drivers
sparse: $(KERNELS:%=$(BUILD)/checked/sparse-%) ## sparse over the patched rdma_rxe and the test drivers, on each kernel

$(BUILD)/checked/checkpatch: $(CHECK_SRC) $(wildcard kernel/patches/rdma-rereg/*/*.patch) | testbed
	@$(TESTBED) fetch -kernel $(CHECK_KERNEL) -if-missing >/dev/null
	@BUILD=$(BUILD) kernel/checkpatch.sh $(CHECK_KERNEL)
	@mkdir -p $(@D) && touch $@

# If a kernel cannot be had here, the recipe leaves no stamp, and the next run tries again.
$(BUILD)/checked/sparse-%: $(CHECK_SRC) | testbed
	@status=0; $(TESTBED) fetch -kernel $* -if-missing >/dev/null || status=$$?; \
		if [ $$status -eq 77 ]; then echo "kernel $* cannot be had here: sparse does not look at it"; exit; fi; \
		[ $$status -eq 0 ] || exit $$status; \
		export SPARSE=1 BUILD=$(BUILD); kernel/build.sh $*; \
		$(if $(filter $(SOFTGPU_KERNELS),$*),kernel/softgpu/build.sh $*;) \
		mkdir -p $(@D) && touch $@

# Not part of `make test`: the RDMA core with these patches takes minutes to build.
.PHONY: sparse-rereg
sparse-rereg: | testbed ## sparse over the RDMA core and rdma_rxe of kernel/patches/rdma-rereg, on KERNEL (7.2, 7.3)
	@$(TESTBED) fetch -kernel $(KERNEL) -if-missing >/dev/null
	@SPARSE=1 BUILD=$(BUILD) kernel/build.sh $(KERNEL) rereg

# 1 prints the figures; write also puts them into docs/reference/p2p-decisions.md.
CORPUS ?= 1

.PHONY: corpus
corpus: ## print p2pcheck's verdicts on the corpus beside the right answers (CORPUS=write: into the document)
	@GPURDMA_CORPUS=$(CORPUS) $(GO) test -count=1 -v -run '^TestCorpusVerdicts$$' ./p2p
