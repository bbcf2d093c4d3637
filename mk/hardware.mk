# SPDX-License-Identifier: Apache-2.0
#
# The test for a machine with a real GPU: docs/hardware.md. It needs Go, make and a C
# compiler, and no network if Go has the modules already (go mod download).

# The libraries to ask: cuda, rocm, levelzero, or several; all that are installed by default.
HARDWARE ?=
HARDWARE_DIR := $(BUILD)/hardware
HARDWARE_PROGRAMS := ./cmd/hardware-test ./cmd/p2pcheck ./p2p/testdata/machines/convert
HARDWARE_RUNTIMES := ./gpualloc/cuda ./gpualloc/rocm ./gpualloc/levelzero ./fabrictest

.PHONY: hardware-programs
hardware-programs: ## build the programs that hardware-test runs, into build/hardware/bin
	@mkdir -p $(HARDWARE_DIR)/bin
	$(GO) build -trimpath -ldflags '$(GO_LDFLAGS)' -o $(HARDWARE_DIR)/bin/ $(HARDWARE_PROGRAMS)
	$(GO) test -c -o $(HARDWARE_DIR)/bin/ $(HARDWARE_RUNTIMES)

.PHONY: hardware-test
hardware-test: hardware-programs ## predict, ask and prove on this machine's GPUs (HARDWARE=cuda, rocm or levelzero)
	$(HARDWARE_DIR)/bin/hardware-test -runtimes '$(HARDWARE)'
