# SPDX-License-Identifier: Apache-2.0
#
# The BPF objects of trace/. They are committed, so that a build needs no clang.
# The clang named here compiles them to the same bytes.

BPF_CLANG ?= clang-14
BPF_STRIP ?= llvm-strip-14
# `make test` installs the compiler. Without it `make unit` fails, and `go test` alone
# skips the comparison of the objects.
unit: export GPURDMA_NEED_CLANG := 1

BPF_DIR := trace/internal/objects/bpf
BPF_OBJECTS := $(addprefix $(BPF_DIR)/,core.o rdma.o rdma_kprobe.o exporter.o iter.o symbols.o)
# The directory is not in the objects; the source's name is relative to it.
BPF_FLAGS := -target bpf -mcpu=v3 -O2 -g -std=gnu11 -Wall -Werror -fdebug-compilation-dir=.

$(BPF_DIR)/%.o: $(BPF_DIR)/%.bpf.c $(wildcard $(BPF_DIR)/*.h) mk/trace.mk
	cd $(BPF_DIR) && $(BPF_CLANG) $(BPF_FLAGS) -c $(<F) -o $(@F)
	$(BPF_STRIP) -g $@

.PHONY: generate
generate: $(BPF_OBJECTS) ## compile the BPF objects (needs clang-14 and llvm-14)
