# SPDX-License-Identifier: Apache-2.0
#
# Tests of the pages of p2pcheck in Debian's browser, without a window. Not part of `make test`.

# axe-core finds the parts of a page that people with a screen reader or with weak eyes cannot read. make
# downloads it; it is no part of the project.
PAGE_AXE := 4.14.1
PAGE_AXE_SHA512 := 1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
PAGE_DIR := $(BUILD)/page
PAGE_FLAGS ?=

.PHONY: page-tools
page-tools:
	@BUILD=$(BUILD) testbed/setup.sh page
	@$(MAKE) --no-print-directory $(PAGE_DIR)/axe-$(PAGE_AXE).js

$(PAGE_DIR)/axe-$(PAGE_AXE).js:
	@mkdir -p $(PAGE_DIR)
	@cd $(PAGE_DIR) && npm pack --silent axe-core@$(PAGE_AXE) >/dev/null && \
		echo '$(PAGE_AXE_SHA512)  axe-core-$(PAGE_AXE).tgz' | sha512sum --check --quiet - && \
		tar -xzOf axe-core-$(PAGE_AXE).tgz package/axe.min.js >axe.tmp && mv axe.tmp axe-$(PAGE_AXE).js && rm axe-core-$(PAGE_AXE).tgz

.PHONY: test-page
test-page: page-tools ## test the pages of p2pcheck in a browser (PAGE_FLAGS: flags of go test)
	cd p2p/page/browser && GPURDMA_NEED_BROWSER=1 GPURDMA_AXE=$(PAGE_DIR)/axe-$(PAGE_AXE).js $(GO) test -count=1 -timeout 20m $(PAGE_FLAGS) .
