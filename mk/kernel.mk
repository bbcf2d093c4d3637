# SPDX-License-Identifier: Apache-2.0
#
# The kernel side: the patched rdma_rxe, the patched rxe provider, and the
# independent C program that tests both.

.PHONY: kernel
kernel: ## build the patched rdma_rxe.ko of KERNEL
	@BUILD=$(BUILD) kernel/build.sh $(KERNEL)

.PHONY: kernel-rereg
kernel-rereg: ## build the RDMA core of KERNEL (7.2, 7.3) that re-registers dma-bufs in place
	@BUILD=$(BUILD) kernel/build.sh $(KERNEL) rereg

# rdma-core's major version: 56 or 65.
RXE_PROVIDER ?= 56
# If the archive does not have it, RDMA_CORE_SOURCE_65=FILE names a tarball of its source.
RDMA_CORE_SOURCE = $(if $(RDMA_CORE_SOURCE_$(1)),-source '$(RDMA_CORE_SOURCE_$(1))')

# With IF_AVAILABLE, make goes on if the source cannot be had here (status 77).
OR_UNAVAILABLE = || { status=$$?; [ $$status = 77 ] && [ -n "$(IF_AVAILABLE)" ] || exit $$status; }

.PHONY: rxe-provider
rxe-provider: ## build libibverbs with a patched rxe provider, where its source can be had
	@BUILD=$(BUILD) kernel/rxe-provider.sh $(call RDMA_CORE_SOURCE,$(RXE_PROVIDER)) $(RXE_PROVIDER) $(OR_UNAVAILABLE)
	@$(DOWNLOADS) manifest -build $(HOST_BUILD)

.PHONY: libfabric
libfabric: ## build libfabric 2.x and what tests it, where its source can be had
	@BUILD=$(BUILD) testbed/libfabric.sh $(OR_UNAVAILABLE)
	@$(DOWNLOADS) manifest -build $(HOST_BUILD)

# The independent C program: libibverbs and raw ioctls, no Go. It needs the
# headers of libibverbs-dev, which nothing else here does.
CPROG ?= $(BUILD)/bin/dmabuf-mr
FI_RMA ?= $(BUILD)/bin/fi-rma
CPROG_SRC := $(addprefix testbed/cprog/,bench.c bufinfo.c errname.c exporter.c \
	json.c loopback.c main.c mr.c options.c pattern.c selftest.c \
	selftest_atomic.c selftest_lifetime.c selftest_refusal.c \
	selftest_rereg.c selftest_transfer.c verify.c)
CPROG_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes

.PHONY: cprog
cprog: $(CPROG) $(BUILD)/bin/bar-search $(FI_RMA) $(BUILD)/bin/preload.so ## build the independent C programs

$(BUILD)/bin/bar-search: testbed/cprog/bar-search.c mk/kernel.mk
	@mkdir -p $(@D)
	$(or $(GUEST_CC),$(CC)) $(CPPFLAGS) $(CPROG_CFLAGS) $(LDFLAGS) -o $@ $<

# preload.so lets programs of Debian's register dma-bufs. It looks up with RTLD_NEXT the
# functions of libibverbs that it replaces. It is linked with libibverbs although it uses
# no symbol of it: Python loads libraries in a scope that the lookup does not search.
$(BUILD)/bin/preload.so: $(addprefix testbed/cprog/,preload.c exporter.c mr.c exporter.h mr.h) mk/kernel.mk
	@mkdir -p $(@D)
	$(or $(GUEST_CC),$(CC)) $(CPPFLAGS) $(CPROG_CFLAGS) -fPIC -shared $(LDFLAGS) -o $@ $(filter %.c,$^) \
		-Wl,--no-as-needed -libverbs -ldl

# fi-rma calls libfabric for the tests of package fi: Debian's, or that of testbed/libfabric.sh.
$(FI_RMA): $(addprefix testbed/cprog/,fi-rma.c errname.c exporter.c errname.h exporter.h) mk/kernel.mk
	@mkdir -p $(@D)
	$(or $(GUEST_CC),$(CC)) $(CPPFLAGS) $(CPROG_CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -lfabric

# A recursive variable on purpose: make runs the compiler for this recipe only.
HAVE_FLUSH = $(if $(shell $(or $(GUEST_CC),$(CC)) $(CPPFLAGS) -E -include infiniband/verbs.h \
	-x c /dev/null 2>/dev/null | grep ibv_wr_flush),-DHAVE_IBV_WR_FLUSH)

$(CPROG): $(CPROG_SRC) $(wildcard testbed/cprog/*.h) mk/kernel.mk
	@mkdir -p $(@D)
	$(or $(GUEST_CC),$(CC)) $(CPPFLAGS) $(CPROG_CFLAGS) $(HAVE_FLUSH) $(LDFLAGS) -o $@ $(CPROG_SRC) -libverbs -pthread
