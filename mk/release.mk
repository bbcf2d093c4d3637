# SPDX-License-Identifier: Apache-2.0
#
# A release: archives, packages, the container image of p2pcheck, the lists of the modules in the commands (SBOM), and
# the checksums of all of them. Its version is the checkout's (script/version), its date the commit's.

RELEASE := $(BUILD)/release
RELEASE_AGAIN := $(BUILD)/release-again

.PHONY: release
release: ## write archives, packages, the image, SBOMs and SHA256SUMS of this version into build/release
	@BUILD=$(BUILD) testbed/setup.sh packages
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	@for arch in $(PACKAGE_ARCHES); do \
		ARCHIVE=yes PKG_VERSION='$(PACKAGE_VERSION)' $(BUILD_PACKAGES) $$arch $(RELEASE) || exit 1; \
	done
	@$(MAKE) --no-print-directory image-static IMAGE_DIR=$(BUILD)/release-image \
		VERSION='$(VERSION)' REVISION='$(REVISION)' IMAGE_EPOCH=$(COMMIT_EPOCH)
	@cp $(BUILD)/release-image/p2pcheck.tar $(RELEASE)/p2pcheck-$(PACKAGE_VERSION)-image.tar
	@rm -rf $(BUILD)/release-image
	@cd $(RELEASE) && sha256sum -- * >.sums && mv .sums SHA256SUMS && cat SHA256SUMS

# The second build is from the same source in another directory, which has no commits.
.PHONY: test-release
test-release: release ## build the release once more in another directory: the same bytes, which unpack and run
	@rm -rf $(RELEASE_AGAIN) && mkdir -p $(RELEASE_AGAIN)/src
	@git ls-files -z --cached --others --exclude-standard | xargs -0 cp -P --parents -t $(RELEASE_AGAIN)/src
	@$(MAKE) --no-print-directory -C $(RELEASE_AGAIN)/src release VERSION='$(VERSION)' REVISION='$(REVISION)' \
		COMMIT_EPOCH=$(COMMIT_EPOCH) IMAGE_EPOCH=$(IMAGE_EPOCH) PACKAGE_ARCHES='$(PACKAGE_ARCHES)' >/dev/null
	@cd deploy && GPURDMA_RELEASE=$(RELEASE) GPURDMA_RELEASE_AGAIN=$(RELEASE_AGAIN)/src/build/release \
		GPURDMA_RELEASE_VERSION='$(VERSION)' GPURDMA_RELEASE_REVISION='$(REVISION)' GPURDMA_RELEASE_ARCHES='$(PACKAGE_ARCHES)' \
		$(GO) test -count=1 -v -run '^TestRelease' ./packaging
