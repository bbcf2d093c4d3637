# SPDX-License-Identifier: Apache-2.0
#
# Documents that are written from the programs: the pages of the checks, of the commands and the schemas
# of the JSON documents. The tests that compare them with the programs write them here.

.PHONY: reference
reference: ## write docs/how-to/remedies, docs/reference/commands and docs/reference/schema from the programs
	$(GO) test -count=1 -run '^(TestRemedyPages|TestCommandPages|TestSchemas|TestExamples|TestSupport)$$' ./cmd/p2pcheck -update
	$(GO) test -count=1 -run '^(TestCommandPages|TestSchemas)$$' ./cmd/dmabuf-reg -update
