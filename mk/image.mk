# SPDX-License-Identifier: Apache-2.0
#
# The container image of p2pcheck, as an archive in the OCI image layout. No
# daemon takes part, and the same source gives the same bytes.

IMAGE_DIR := $(BUILD)/image
IMAGE_PLATFORMS := amd64 arm64
# The date that the image gives for itself is the commit's.
IMAGE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
IMAGE_FLAGS = -entrypoint /usr/bin/p2pcheck -port 9838/tcp -ref $(subst ~,-,$(VERSION)) \
	-label org.opencontainers.image.title=p2pcheck \
	-label org.opencontainers.image.description='Does this RDMA NIC reach this GPU, and if not, why' \
	-label org.opencontainers.image.version=$(VERSION) \
	-label org.opencontainers.image.licenses=Apache-2.0

.PHONY: image
image: image-static image-nvml ## write the container images of p2pcheck into build/image, and print their digests

.PHONY: oci-image
oci-image:
	@mkdir -p $(BUILD)/bin
	@cd deploy && CGO_ENABLED=0 $(GO) build -trimpath -o $(BUILD)/bin/oci-image ./cmd/oci-image

# -buildvcs=false, because Go's own stamp of the repository would make other bytes of the same source. The
# version names the commit. The image has no NVML, so that facts which only NVML has are unknown in it.
.PHONY: image-static
image-static: oci-image
	@rm -rf $(IMAGE_DIR)/linux-*
	@for arch in $(IMAGE_PLATFORMS); do \
		mkdir -p $(IMAGE_DIR)/linux-$$arch/usr/bin $(IMAGE_DIR)/linux-$$arch/usr/share/doc/p2pcheck && \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '$(GO_LDFLAGS)' -o $(IMAGE_DIR)/linux-$$arch/usr/bin/p2pcheck ./cmd/p2pcheck && \
		cp LICENSE $(IMAGE_DIR)/linux-$$arch/usr/share/doc/p2pcheck/ || exit 1; \
	done
	@SOURCE_DATE_EPOCH=$(IMAGE_EPOCH) $(BUILD)/bin/oci-image -o $(IMAGE_DIR)/p2pcheck.tar $(IMAGE_FLAGS) \
		$(foreach arch,$(IMAGE_PLATFORMS),linux/$(arch)=$(IMAGE_DIR)/linux-$(arch))

# The program of this image loads NVML where NVIDIA's container runtime brings it. It is linked
# with glibc, so the image has this machine's glibc, and this machine's architecture only.
.PHONY: image-nvml
image-nvml: oci-image build-p2pcheck
	@rm -rf $(IMAGE_DIR)/nvml
	@mkdir -p $(IMAGE_DIR)/nvml/usr/bin $(IMAGE_DIR)/nvml/usr/share/doc/p2pcheck
	@cp $(BUILD)/bin/p2pcheck $(IMAGE_DIR)/nvml/usr/bin/
	@cp LICENSE $(IMAGE_DIR)/nvml/usr/share/doc/p2pcheck/
	@deploy/glibc.sh $(BUILD)/bin/p2pcheck $(IMAGE_DIR)/nvml
	@SOURCE_DATE_EPOCH=$(IMAGE_EPOCH) $(BUILD)/bin/oci-image -o $(IMAGE_DIR)/p2pcheck-nvml.tar $(IMAGE_FLAGS) \
		-env NVIDIA_VISIBLE_DEVICES=all -env NVIDIA_DRIVER_CAPABILITIES=utility \
		linux/$$($(GO) env GOARCH)=$(IMAGE_DIR)/nvml

# The manifests, with the digest of the image just built. IMAGE is its name in your
# registry, and IMAGE_ARCHIVE p2pcheck or p2pcheck-nvml.
IMAGE ?=
IMAGE_ARCHIVE ?= p2pcheck

.PHONY: manifests
manifests: $(if $(filter p2pcheck-nvml,$(IMAGE_ARCHIVE)),image-nvml,image-static) ## write build/deploy/*.yaml for the image IMAGE=REGISTRY/NAME, by digest
	@cd deploy && CGO_ENABLED=0 $(GO) run -trimpath ./cmd/manifests -archive $(IMAGE_DIR)/$(IMAGE_ARCHIVE).tar -image '$(IMAGE)' \
		-o $(BUILD)/deploy $(patsubst deploy/%,%,$(wildcard deploy/kubernetes/*.yaml))
