# SPDX-License-Identifier: Apache-2.0
#
# The health check, the Prolog and the TaskProlog under the real Slurm: Debian's slurmctld, slurmd and
# munge, in namespaces of their own. Nothing is installed on this machine, and nothing of its own Slurm is
# touched.

# bookworm has Slurm 22.05, trixie 24.11.
SLURM_SUITES ?= bookworm trixie
SLURM_DIR := $(BUILD)/slurm
# More flags of the test's program: -test.run RE.
SLURMTESTFLAGS ?=

.PHONY: slurm-programs
slurm-programs:
	@mkdir -p $(SLURM_DIR)/bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(SLURM_DIR)/bin/p2pcheck ./cmd/p2pcheck
	cd deploy && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(SLURM_DIR)/bin/slurm-p2p ./cmd/slurm-p2p
	cd deploy && CGO_ENABLED=0 $(GO) test -c -o $(SLURM_DIR)/bin/slurmtest ./slurm/slurmtest

# If a suite cannot be had here, the target fails, or with IF_AVAILABLE prints a line about it.
.PHONY: test-slurm
test-slurm: slurm-programs ## test the health check, the Prolog and the NICs of jobs under the real Slurm
	@BUILD=$(BUILD) testbed/setup.sh
	@for suite in $(SLURM_SUITES); do \
		status=0; BUILD=$(BUILD) testbed/slurm.sh $$suite || status=$$?; \
		if [ $$status -eq 77 ] && [ -n "$(IF_AVAILABLE)" ]; then echo "SKIP Slurm of $$suite cannot be had here"; continue; fi; \
		[ $$status -eq 0 ] || exit $$status; \
		echo "Slurm of Debian's $$suite:"; \
		deploy/slurm/slurmtest/enter.sh $(SLURM_DIR)/$$suite $(SLURM_DIR)/bin /opt/slurmtest -test.timeout 10m $(SLURMTESTFLAGS) || exit 1; \
	done
