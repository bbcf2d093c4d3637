# SPDX-License-Identifier: Apache-2.0
#
# Packages for Debian and for distributions with rpm, and the manual pages and completions that they and
# `make install` have beside the programs.

# The date that pages and packages give for themselves is the commit's.
COMMIT_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
MANUAL := $(BUILD)/manual

# The manual is made from the commands' own help, by programs of this machine.
.PHONY: manual
manual: ## write manual pages and completions of the commands into build/manual
	@rm -rf $(MANUAL) && mkdir -p $(MANUAL)
	@for c in $(COMMANDS); do \
		SOURCE_DATE_EPOCH=$(COMMIT_EPOCH) $(GO) run -trimpath -tags manual -ldflags '-X main.version=$(VERSION)' ./cmd/$$c $(MANUAL) || exit 1; \
	done

PACKAGES := $(BUILD)/packages
PACKAGE_ARCHES ?= amd64 arm64
# The packages' version is that of the programs.
PACKAGE_VERSION ?= $(VERSION)
BUILD_PACKAGES = GO='$(GO)' GO_LDFLAGS='$(GO_LDFLAGS)' VERSION='$(VERSION)' SOURCE_DATE_EPOCH=$(COMMIT_EPOCH) deploy/packaging/build.sh

.PHONY: packages
packages: ## write deb and rpm packages of the commands into build/packages (PACKAGE_ARCHES)
	@BUILD=$(BUILD) testbed/setup.sh packages
	@rm -rf $(PACKAGES) && mkdir -p $(PACKAGES)
	@for arch in $(PACKAGE_ARCHES); do \
		PKG_VERSION='$(PACKAGE_VERSION)' $(BUILD_PACKAGES) $$arch $(PACKAGES) || exit 1; \
	done
	@cd $(PACKAGES) && sha256sum *

PACKAGES_ROOTS := $(BUILD)/packages-roots
PACKAGES_OLDER := $(BUILD)/packages-older
PACKAGES_AGAIN := $(BUILD)/packages-again
PACKAGE_SUITES := bookworm trixie

# The test also gets packages of an older version, for the upgrade, and packages of a copy of the source in
# another directory, which must have the same bytes.
.PHONY: test-packages
test-packages: packages ## check the packages, and install, upgrade, run and purge them in Debian 12 and 13
	@rm -rf $(PACKAGES_OLDER) $(PACKAGES_AGAIN) && mkdir -p $(PACKAGES_OLDER) $(PACKAGES_AGAIN)/src $(PACKAGES_AGAIN)/out
	@PKG_VERSION=0~0.older $(BUILD_PACKAGES) $(shell $(GO) env GOHOSTARCH) $(PACKAGES_OLDER)
	@git ls-files -z --cached --others --exclude-standard | xargs -0 cp -P --parents -t $(PACKAGES_AGAIN)/src
	@cd $(PACKAGES_AGAIN)/src && PKG_VERSION='$(PACKAGE_VERSION)' $(BUILD_PACKAGES) $(shell $(GO) env GOHOSTARCH) $(PACKAGES_AGAIN)/out
	@roots=$(PACKAGES_ROOTS); for suite in $(PACKAGE_SUITES); do \
		status=0; deploy/packaging/root.sh $$suite $(PACKAGES_ROOTS)/$$suite || status=$$?; \
		[ $$status -eq 77 ] && roots= || [ $$status -eq 0 ] || exit $$status; \
	done; \
	cd deploy && GPURDMA_PACKAGES=$(PACKAGES) GPURDMA_PACKAGES_OLDER=$(PACKAGES_OLDER) GPURDMA_PACKAGES_AGAIN=$(PACKAGES_AGAIN)/out \
		GPURDMA_PACKAGES_ROOTS=$$roots $(GO) test -count=1 -v -timeout 30m ./packaging
