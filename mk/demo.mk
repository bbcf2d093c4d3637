# SPDX-License-Identifier: Apache-2.0
#
# The main job, end to end, for a user who has just cloned the repository.

# The newest series that can be had here, unless KERNEL says which.
DEMO_KERNELS := $(if $(filter file,$(origin KERNEL)),$(if $(GUEST_GO),7.2,7.3 7.2 6.12),$(KERNEL))
# Where the software GPU's driver does not build, the demo does without it.
DEMO_GPU = $(filter $(SOFTGPU_KERNELS),$(KERNEL))

.PHONY: demo
demo: ## move and check bytes between a NIC and every kind of memory, in a VM
	@$(MAKE) --no-print-directory testbed
	@for k in $(DEMO_KERNELS); do \
		status=0; $(TESTBED) fetch -kernel $$k -if-missing || status=$$?; \
		if [ $$status -eq 0 ]; then exec $(MAKE) --no-print-directory demo-run KERNEL=$$k; fi; \
		echo "demo: kernel $$k cannot be had here; the reason is above" >&2; \
	done; exit $$status

# One recipe, so that its commands run one after the other with -j, too: the second needs
# the modules and programs that the first builds.
.PHONY: demo-run
demo-run:
	@$(MAKE) --no-print-directory kernel build $(BUILD)/bin/bar-search $(if $(DEMO_GPU),softgpu)
	@$(TESTBED) run -kernel $(KERNEL) -patched-rxe -machine $(if $(DEMO_GPU),switch,default) $(VMFLAGS) -- \
		/bin/bash $(CURDIR)/cmd/dmabuf-reg/demo.sh
