# SPDX-License-Identifier: Apache-2.0
#
# ARCH is the processor of the virtual machines: ARCH=arm64 boots Debian's kernels for it,
# with pages of 16 KiB, or of 4 KiB with PAGES=4k. Programs and modules for such guests have
# a build directory of their own, below that of this machine's programs.

ARCH ?= amd64
PAGES ?= 16k
FLAVOUR_amd64 := amd64
FLAVOUR_arm64 := $(if $(filter 4k,$(PAGES)),arm64,$(if $(filter 16k,$(PAGES)),arm64-16k))
# Debian's name for the kernel's build.
FLAVOUR := $(or $(FLAVOUR_$(ARCH)),$(error ARCH is amd64 or arm64, PAGES is 16k or 4k, of arm64 only))

HOST_BUILD := $(BUILD)
ifneq ($(ARCH),amd64)
override BUILD := $(CURDIR)/build/$(FLAVOUR)
HOST_BUILD := $(CURDIR)/build
# The test bed and the scripts of kernel/ read these from the environment.
export GPURDMA_FLAVOUR := $(FLAVOUR)
export FLAVOUR
USERLAND := $(HOST_BUILD)/userland-$(ARCH)
CROSS_PREFIX_arm64 := aarch64-linux-gnu-
export STRIP := $(CROSS_PREFIX_$(ARCH))strip
# A recipe that builds a program for the guest compiles C with GUEST_CC, and puts GUEST_GO
# before a command of Go.
GUEST_CC := $(CROSS_PREFIX_$(ARCH))gcc --sysroot=$(USERLAND)
GUEST_GO := GOARCH=$(ARCH) CGO_ENABLED=1 CC="$(GUEST_CC)"
endif
