# SPDX-License-Identifier: Apache-2.0
#
# Tests of the page of `dmabuf-reg bench --html` in Debian's browser, without a window. Not part of `make test`.

BENCH_PAGE := cmd/dmabuf-reg/internal/bench/browser
BENCH_PAGE_FLAGS ?=

.PHONY: test-bench-page
test-bench-page: ## test the page of dmabuf-reg bench in a browser (BENCH_PAGE_FLAGS: flags of go test)
	@BUILD=$(BUILD) testbed/setup.sh page
	cd $(BENCH_PAGE) && GPURDMA_NEED_BROWSER=1 $(GO) test -count=1 -timeout 20m $(BENCH_PAGE_FLAGS) .
