# SPDX-License-Identifier: Apache-2.0
#
# The kernel side: the patched rdma_rxe.

.PHONY: kernel
kernel: ## build the patched rdma_rxe.ko of KERNEL
	@BUILD=$(BUILD) kernel/build.sh $(KERNEL)

# The independent C program: libibverbs and raw ioctls, no Go. It needs the
# headers of libibverbs-dev, which nothing else here does.
CPROG_SRC := $(addprefix testbed/cprog/,bench.c bufinfo.c errname.c exporter.c \
	json.c loopback.c main.c mr.c options.c pattern.c selftest.c \
	selftest_atomic.c selftest_lifetime.c selftest_refusal.c \
	selftest_rereg.c selftest_transfer.c verify.c)
CPROG_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes
ifneq ($(shell grep -l ibv_wr_flush /usr/include/infiniband/verbs.h 2>/dev/null),)
CPROG_CFLAGS += -DHAVE_IBV_WR_FLUSH
endif

.PHONY: cprog
cprog: $(BUILD)/bin/dmabuf-mr ## build the independent C program

$(BUILD)/bin/dmabuf-mr: $(CPROG_SRC) $(wildcard testbed/cprog/*.h) mk/kernel.mk
	@mkdir -p $(@D)
	$(CC) $(CPROG_CFLAGS) -o $@ $(CPROG_SRC) -libverbs -pthread
