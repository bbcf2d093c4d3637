# SPDX-License-Identifier: Apache-2.0
#
# Benchmarks beside a C program. They are not part of the tests: no test asserts
# a time.

BENCH_ROUNDS := testbed/cprog/rounds.c testbed/cprog/rounds.h

$(BUILD)/bin/reg-loop: testbed/cprog/reg-loop.c $(BENCH_ROUNDS) | setup
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -Werror -o $@ $(filter %.c,$^) -libverbs

# The ioctls of newer GPU drivers are in the kernel's headers only. The recipe
# compiles alloc-loop each time: its ioctls depend on the headers of KERNEL.
.PHONY: bench-build
bench-build: vm-ready $(BUILD)/bin/reg-loop
	kdir=$$(realpath $(BUILD)/kernels/$(KERNEL)/headers/kdir); \
	$(CC) -std=gnu11 -O2 -Wall -Wextra -Werror -D__user= -idirafter "$${kdir%-amd64}-common/include/uapi" \
		-o $(BUILD)/bin/alloc-loop testbed/cprog/alloc-loop.c $(filter %.c,$(BENCH_ROUNDS))
	$(GO) build -trimpath -ldflags '$(GO_LDFLAGS)' -o $(BUILD)/bin/bench ./bench

# The machine has software GPUs if their driver compiles for the kernel: one GPU
# of each personality that has ioctls of its own.
BENCH_MACHINE = $(if $(SOFTGPU_VM),fabric,default)
BENCH_FIRST = $(if $(SOFTGPU_VM),modprobe softgpu personality=amdgpu$(comma)xe$(comma)i915;)
comma := ,

# An emulator spends its time on looking up translated code, so that code which is
# spread out costs far more there than on any processor. Where processors are
# emulated, the benchmarks count instructions. BENCH_COUNT= measures time there, too.
BENCH_COUNT ?= -count

.PHONY: bench
bench: bench-build ## compare registration and allocation from Go with C, in the testbed
	@$(BUILD)/bin/testbed run -kernel $(KERNEL) -patched-rxe -machine $(BENCH_MACHINE) $(BENCH_COUNT) -timeout 90m -- \
		sh -c '$(BENCH_FIRST) exec bench "$$@"' bench $(BENCH_ARGS)
	@$(MAKE) --no-print-directory bench-trace
	@$(MAKE) --no-print-directory bench-rdma

# It takes seven minutes (-budget). With fewer kinds of traffic, as by
# TRAFFIC_ARGS="-ops write -what rate", it runs more rounds of each in that time.
TRAFFIC_ARGS ?=
TRAFFIC_TIMEOUT ?= 20m
# "-count -cpus 1" counts instructions. That needs a server whose process does nothing
# meanwhile: READs, and the rate of WRITEs.
TRAFFIC_COUNT ?=

.PHONY: bench-rdma
bench-rdma: bench-build ## compare message rate, bandwidth and latency from Go with perftest, in the testbed
	@$(BUILD)/bin/testbed run -kernel $(KERNEL) -patched-rxe $(TRAFFIC_COUNT) -timeout $(TRAFFIC_TIMEOUT) -- \
		bench -only traffic $(TRAFFIC_ARGS)

# Package gpurdma over 1, 2 and 4 NICs, beside UCX. It takes half an hour; RAILS_ARGS="-rounds 3" shortens it.
RAILS_ARGS ?=

.PHONY: bench-rails
bench-rails: bench-build ## compare transfers over several NICs with ucx_perftest, in the testbed
	@BUILD=$(BUILD) testbed/setup.sh bench
	@$(BUILD)/bin/testbed run -kernel $(KERNEL) -patched-rxe $(BENCH_COUNT) $(if $(BENCH_COUNT),-cpus 1) -timeout 90m -- \
		bench -only rails $(RAILS_ARGS)

# It counts instructions on one processor, and takes three minutes.
.PHONY: bench-scale
bench-scale: bench-build ## what an endpoint's peers cost its operations, in the testbed
	@$(BUILD)/bin/testbed run -kernel $(KERNEL) -patched-rxe $(BENCH_COUNT) $(if $(BENCH_COUNT),-cpus 1) -timeout 30m -- \
		bench -only scale $(BENCH_ARGS)

# The time that tracing adds, beside that of a bpftrace script on the same functions.
.PHONY: bench-trace
bench-trace: bench-build ## the time that tracing adds to a registration, in the testbed
	@BUILD=$(BUILD) testbed/setup.sh bench
	@$(BUILD)/bin/testbed run -kernel $(KERNEL) -patched-rxe $(BENCH_COUNT) -timeout 90m -- \
		sh -c 'mount -t tracefs none /sys/kernel/tracing 2>/dev/null; exec bench -only tracing "$$@"' bench $(BENCH_ARGS)

# On this machine, without a NIC: posting and polling beside the same loop in C, and
# lowering of a layout.
BINDING_TESTS := ibvfd lower
BINDING_DIR_ibvfd := ./ibvfd
BINDING_DIR_lower := ./internal/lower
BINDING_ARGS ?=

.PHONY: bench-binding
bench-binding: ## what a work request costs beside C, and the lowering of a layout
	@mkdir -p $(BUILD)/bin
	$(GO) build -trimpath -o $(BUILD)/bin/bench ./bench
	$(foreach t,$(BINDING_TESTS),$(GO) test -c -o $(BUILD)/bin/$(t).test $(BINDING_DIR_$(t)) &&) true
	@$(BUILD)/bin/bench -only binding -tests $(BUILD)/bin $(BINDING_ARGS)

bench: bench-binding

# It runs on this machine: lspci and lstopo can read a tree of files, as p2pcheck does.
.PHONY: bench-p2pcheck
bench-p2pcheck: ## compare p2pcheck with lspci, lstopo and an earlier build (P2PCHECK_BEFORE=FILE) on a machine of 4,000 PCI functions
	@BUILD=$(BUILD) testbed/setup.sh bench
	$(GO) test -run '^$$' -bench 'Check|Peers' -benchtime 30x ./cmd/p2pcheck
	$(GO) test -run '^$$' -bench Instructions -benchtime 1x ./cmd/p2pcheck
	$(GO) test -run '^$$' -bench 'Snapshot$$' -benchtime 3x ./cmd/p2pcheck
	TMPDIR=/dev/shm $(GO) test -run '^$$' -bench SnapshotOfMany -benchtime 1x ./cmd/p2pcheck
	for which in equal kinds one-fact all-different; do \
		$(GO) test -run '^$$' -bench "Report/.*-$$which$$" -benchtime 1x ./p2p/fleet || exit 1; \
	done

bench: bench-p2pcheck
