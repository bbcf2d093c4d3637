# SPDX-License-Identifier: Apache-2.0
#
# The DRA driver's tests on a real kernel: proofs on the software GPU, messages about devices, and the limit of
# locked memory in containers of runc and crun. They need a kernel with the software GPU: KERNEL=7.2 or 6.12.

DRA_VM := $(BUILD)/dra-vm
DRA_VM_TESTS ?= .

.PHONY: dra-vm
dra-vm: vm-ready ## the DRA driver's tests on a real kernel (KERNEL=7.2): proofs, messages about devices, memory limits
	@BUILD=$(BUILD) testbed/setup.sh dra
	@$(MAKE) --no-print-directory dra-vm-run

.PHONY: dra-vm-run
dra-vm-run:
	@mkdir -p $(DRA_VM)
	cd deploy/dra && CGO_ENABLED=0 GOARCH=$(ARCH) $(GO) build -trimpath -o $(DRA_VM)/dra-p2p-memlock ./cmd/dra-p2p-memlock
	cd deploy/dra && for p in uevent memlock proving; do $(GUEST_GO) $(GO) test -c -o $(DRA_VM)/$$p.test ./$$p || exit 1; done
	$(TESTBED) run -kernel $(KERNEL) -machine fabric+EPYC -patched-rxe -timeout 20m -- deploy/dra/vm.sh $(DRA_VM) '$(DRA_VM_TESTS)'
