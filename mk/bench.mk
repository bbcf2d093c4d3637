# SPDX-License-Identifier: Apache-2.0
#
# Speed, side by side with a C program. Not part of the tests: no test asserts
# a time.

$(BUILD)/bin/reg-loop: testbed/cprog/reg-loop.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -Werror -o $@ $< -libverbs

.PHONY: bench-build
bench-build: $(BUILD)/bin/reg-loop
	@mkdir -p $(BUILD)/bin
	$(GO) build -trimpath -ldflags '$(GO_LDFLAGS)' -o $(BUILD)/bin/bench ./bench

.PHONY: bench
bench: setup testbed kernel bench-build ## compare registration from Go with C, in the testbed
	@$(BUILD)/bin/testbed run -kernel $(KERNEL) -timeout 60m -- bench $(BENCH_ARGS)
