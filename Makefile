# SPDX-License-Identifier: Apache-2.0
#
# Two commands matter: `make demo` and `make test`. Everything they download
# or build goes under build/. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# The kernel series that VM targets boot, a folder in kernel/patches/rxe-dmabuf;
# KERNELS are those of `make test`.
KERNEL ?= $(if $(filter amd64,$(ARCH)),6.12,7.2)
KERNELS ?= 7.3 6.12 7.2 6.1
BUILD := $(CURDIR)/build

.PHONY: all
all: build

include mk/arch.mk
include $(filter-out mk/arch.mk,$(wildcard mk/*.mk))

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*##' $(MAKEFILE_LIST) | sort | \
		awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'
