# SPDX-License-Identifier: Apache-2.0
#
# The software GPU and the test importer: docs/softgpu.md says what they do.

.PHONY: softgpu
softgpu: ## build softgpu.ko and testimporter.ko of KERNEL
	@BUILD=$(BUILD) kernel/softgpu/build.sh $(KERNEL)

# A series that Debian 12 cannot compile gets a root with the right compiler.
.PHONY: buildroot
buildroot: ## fetch KERNEL (7.2) from Debian's newer suites, with a build root
	@BUILD=$(BUILD) kernel/buildroot.sh $(KERNEL)
