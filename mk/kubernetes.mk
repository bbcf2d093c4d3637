# SPDX-License-Identifier: Apache-2.0
#
# The DRA driver (deploy/dra) against Kubernetes' own control plane and the parts of its kubelet that
# talk to drivers. Not part of `make test`: the module has all of Kubernetes, which takes many minutes to build.

DRA_KUBERNETES := deploy/dra/kubernetes
# One test, as in KUBERNETES_RUN=TestPods.
KUBERNETES_RUN ?= .
KUBERNETES_BUILD_JOBS ?= $(shell nproc)

.PHONY: lint-kubernetes
lint-kubernetes: ## vet and staticcheck for the tests on Kubernetes' control plane, and their requirements
	cd $(DRA_KUBERNETES) && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) tool -modfile=../../../tools/go.mod staticcheck ./...

.PHONY: test-kubernetes
test-kubernetes: ## the DRA driver against Kubernetes' own control plane and kubelet, without containers
	@mkdir -p $(BUILD)/bin
	cd $(DRA_KUBERNETES) && $(GO) test -vet=off -p $(KUBERNETES_BUILD_JOBS) -c -o $(BUILD)/bin/kubernetes.test .
	cd $(DRA_KUBERNETES) && $(BUILD)/bin/kubernetes.test -test.v -test.timeout 60m -test.parallel 16 -test.run '$(KUBERNETES_RUN)'

# The driver's image, as that of p2pcheck (mk/image.mk): the static program, and nothing else.
.PHONY: image-dra
image-dra: oci-image ## write the container image of dra-p2p into build/image, and print its digest
	@rm -rf $(IMAGE_DIR)/dra
	@for arch in $(IMAGE_PLATFORMS); do \
		mkdir -p $(IMAGE_DIR)/dra/linux-$$arch/usr/bin $(IMAGE_DIR)/dra/linux-$$arch/usr/share/doc/dra-p2p && \
		(cd deploy/dra && CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' \
			-o $(IMAGE_DIR)/dra/linux-$$arch/usr/bin/dra-p2p ./cmd/dra-p2p) && \
		cp LICENSE $(IMAGE_DIR)/dra/linux-$$arch/usr/share/doc/dra-p2p/ || exit 1; \
	done
	@SOURCE_DATE_EPOCH=$(IMAGE_EPOCH) $(BUILD)/bin/oci-image -o $(IMAGE_DIR)/dra-p2p.tar -entrypoint /usr/bin/dra-p2p -ref $(subst ~,-,$(VERSION)) \
		-label org.opencontainers.image.title=dra-p2p \
		-label org.opencontainers.image.description='Pairs of a GPU and an RDMA NIC for Kubernetes pods' \
		-label org.opencontainers.image.version=$(VERSION) -label org.opencontainers.image.licenses=Apache-2.0 \
		$(foreach arch,$(IMAGE_PLATFORMS),linux/$(arch)=$(IMAGE_DIR)/dra/linux-$(arch))
