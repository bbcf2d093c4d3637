# SPDX-License-Identifier: Apache-2.0
#
# Go: build, lint, unit tests, cross builds.

GO ?= go
VERSION ?= $(shell script/version)
VERSION := $(VERSION)
REVISION := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
GO_LDFLAGS := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)
# The dynamic linker resolves nvml's symbols at their first use: -z now would kill
# the process at start on a machine without the NVIDIA driver.
GO_LDFLAGS += -extldflags=-Wl,-z,lazy
# go-nvml's generated wrappers call functions that the driver's header deprecates.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
COMMANDS := $(notdir $(wildcard cmd/dmabuf-reg cmd/p2pcheck))
PREFIX ?= /usr/local

.PHONY: build
build: $(COMMANDS:%=build-%) ## build the commands into build/bin

.PHONY: build-%
build-%:
	@mkdir -p $(BUILD)/bin
	$(GUEST_GO) $(GO) build -trimpath -ldflags '$(GO_LDFLAGS)' -o $(BUILD)/bin/$* ./cmd/$*

.PHONY: install
install: build manual ## copy the commands, their manual pages and completions below PREFIX (DESTDIR is honoured)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 0755 $(COMMANDS:%=$(BUILD)/bin/%) $(DESTDIR)$(PREFIX)/bin
	@cd $(MANUAL) && find . -type f -exec install -D -m 0644 {} $(DESTDIR)$(PREFIX)/share/{} \;

# The package whose tests read the whole tree. It needs no race detector: its goroutines share nothing.
TREE := ./internal/archtest

# -vet=off, because make lint vets these packages.
.PHONY: unit
unit: ## unit tests of the six modules that need no browser and no control plane
	$(GO) test -race -short -vet=off -timeout 30m $$($(GO) list ./... | grep -v '/$(notdir $(TREE))$$')
	$(GO) test -count=1 -vet=off -timeout 10m $(TREE)
	@$(MAKE) --no-print-directory exhaustive
	cd testbed && $(GO) test -race -timeout 30m ./...
	cd deploy && $(GO) test ./...
	cd deploy/dra && $(GO) test -timeout 20m ./...
	cd metrics/spans && $(GO) test -race -timeout 10m ./...
	cd tools && $(GO) test ./...

# Tests that try thousands of broken machines, or have thousands of callers, run without the race
# detector; the other tests of these packages run with it. -count=1, because these tests open so
# many files that finding their result in the cache takes longer than running them.
.PHONY: exhaustive
exhaustive: ## the unit tests that try thousands of cases
	@tests=$$(script/exhaustive tests); packages=$$(script/exhaustive packages); set -x; \
		$(GO) test -count=1 -vet=off -timeout 30m -run "$$tests" $$packages

# A test that takes a time for granted passes on an idle machine, and fails where it has to wait for a processor.
BUSY ?= ./...
BUSY_JOBS ?= 14
BUSY_TIME ?= 1800
.PHONY: busy
busy: ## the unit tests of BUSY again and again for BUSY_TIME seconds, BUSY_JOBS at once; finds those that fail on a busy machine
	script/busy $(BUILD)/busy $(BUSY_JOBS) $(BUSY_TIME) $(BUSY)

.PHONY: dra-table
dra-table: ## place pods by pairs and by pcieRoot alone, and write the table in docs/fleet.md
	cd deploy/dra && GPURDMA_DRA=write $(GO) test -count=1 -timeout 20m -run 'Table$$' ./resources

# The unit tests run the seeds only. This target fuzzes one parser after the other. FUZZ_CORPUS
# keeps the inputs that a run finds interesting, for the next run.
FUZZ_TIME ?= 20s
FUZZ_CORPUS ?= $(BUILD)/fuzz
FUZZ_RATE ?= 1000
export FUZZ_RATE
.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZ_TIME, a quarter of an hour in all, and fail below FUZZ_RATE inputs a second
	@git grep -E '^func Fuzz' -- '*_test.go' | sed -n 's/^\(.*\)\/[^/]*:func \(Fuzz[A-Za-z]*\).*/\1 \2/p; s/^[^/]*:func \(Fuzz[A-Za-z]*\).*/. \1/p' | \
		{ status=0; while read -r dir name; do \
			script/fuzz $$dir $$name $(FUZZ_TIME) $(FUZZ_CORPUS) || status=1; \
		done; exit $$status; }

# Each architecture must build these packages without a C compiler.
.PHONY: cross
cross: ## CGO_ENABLED=0 builds for linux/amd64 and linux/arm64
	for arch in amd64 arm64; do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build ./... && \
		(cd metrics/spans && CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build ./...) && \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) vet ./... || exit 1; \
	done

# The modules' requirements are those that `go mod tidy` writes. It asks the module proxy, or the
# module cache, also for modules that only the tests of requirements need. Only
# `make lint-kubernetes` asks for all of Kubernetes.
MODULES := $(filter-out deploy/dra/kubernetes,$(patsubst %/,%,$(dir $(shell git ls-files "*go.mod"))))
.PHONY: tidy-check
tidy-check: ## the go.mod and go.sum of each module are as `go mod tidy` writes them
	@bad=; for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || bad="$$bad $$m"; done; \
		[ -z "$$bad" ] || { echo "go.mod and go.sum are not as go mod tidy writes them, or it failed, with its message above:$$bad" >&2; exit 1; }

.PHONY: lint
lint: tidy-check ## gofmt, vet and staticcheck for the eight modules, and their requirements
	@bad=$$(gofmt -l $$(git ls-files '*.go')); \
		if [ -n "$$bad" ]; then echo "not gofmt-ed: $$bad" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags manual $(COMMANDS:%=./cmd/%)
	cd testbed && $(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	cd testbed && $(GO) tool -modfile=../tools/go.mod staticcheck ./...
	cd deploy && $(GO) vet ./... && $(GO) tool -modfile=../tools/go.mod staticcheck ./...
	cd deploy/dra && $(GO) vet ./... && $(GO) tool -modfile=../../tools/go.mod staticcheck ./...
	cd metrics/spans && $(GO) vet ./... && $(GO) tool -modfile=../../tools/go.mod staticcheck ./...
	cd tools && $(GO) vet ./... && $(GO) tool staticcheck ./...
	cd cmd/dmabuf-reg/internal/bench/browser && $(GO) vet ./... && $(GO) tool -modfile=$(CURDIR)/tools/go.mod staticcheck ./...
	cd p2p/page/browser && $(GO) vet ./... && $(GO) tool -modfile=../../../tools/go.mod staticcheck ./...

# The oldest glibc that the commands promise to start on: Debian 12 builds must
# not pick up symbols that RHEL 9 and Ubuntu 22.04 (2.34, 2.35) lack.
GLIBC_MAX := 2.34
.PHONY: glibc-check
glibc-check: build ## the commands need no glibc symbol newer than GLIBC_MAX
	@for c in $(COMMANDS); do script/glibc-check $(BUILD)/bin/$$c $(GLIBC_MAX); done
