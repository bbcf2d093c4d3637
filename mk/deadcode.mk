# SPDX-License-Identifier: Apache-2.0
#
# Functions that no command and no public package reaches: tools/deadcode says how they are found, and
# tools/deadcode/allow.txt has those that stay.

.PHONY: deadcode
deadcode: ## find functions that only tests call, in three builds of all modules (a minute of a processor)
	@mkdir -p $(BUILD)/bin
	@$(GO) build -modfile=tools/go.mod -o $(BUILD)/bin/deadcode-analyzer golang.org/x/tools/cmd/deadcode
	@cd tools && $(GO) build -o $(BUILD)/bin/deadcode ./deadcode
	@$(BUILD)/bin/deadcode -analyzer $(BUILD)/bin/deadcode-analyzer -allow tools/deadcode/allow.txt $(CURDIR)
