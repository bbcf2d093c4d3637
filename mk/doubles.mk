# SPDX-License-Identifier: Apache-2.0
#
# Doubles of libcuda, libhsa-runtime64, libze_loader and libnvidia-ml, and the real
# ones that Debian has. The tests of gpualloc's vendor runtimes load them.

DOUBLES := $(BUILD)/doubles
RUNTIMES := $(BUILD)/runtimes
DOUBLES_SRC := testbed/doubles
DOUBLES_CORE := $(DOUBLES_SRC)/core.c $(DOUBLES_SRC)/exporter.c
DOUBLES_DEPS := $(DOUBLES_CORE) $(wildcard $(DOUBLES_SRC)/*.h $(DOUBLES_SRC)/*.map) mk/doubles.mk
DOUBLES_CFLAGS := -std=gnu11 -O2 -g -fPIC -shared -fvisibility=hidden -pthread \
	-Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wl,-z,defs

# Debian's own runtimes and headers, unpacked and not installed.
RUNTIME_PACKAGES := libhsa-runtime-dev libhsa-runtime64-1 libhsakmt1 libze-dev libze1

$(RUNTIMES)/.done: mk/doubles.mk | setup
	@rm -rf $(RUNTIMES) && mkdir -p $(RUNTIMES)/deb
	$(DOWNLOADS) fetch -o $(RUNTIMES)/.downloads.json -for doubles -dir $(RUNTIMES)/deb $(RUNTIME_PACKAGES)
	for deb in $(RUNTIMES)/deb/*.deb; do dpkg-deb -x $$deb $(RUNTIMES); done
	@$(DOWNLOADS) manifest -build $(HOST_BUILD)
	@touch $@

CUDA_DOUBLES := $(addprefix $(DOUBLES)/,cuda/libcuda.so.1 cuda-old/libcuda.so.1 cuda-ancient/libcuda.so.1)
HSA_DOUBLES := $(addprefix $(DOUBLES)/,hsa/libhsa-runtime64.so.1 hsa-v1/libhsa-runtime64.so.1)
ZE_DOUBLES := $(addprefix $(DOUBLES)/,ze/libze_loader.so.1)
NVML_DOUBLE := $(DOUBLES)/nvml/libnvidia-ml.so.1

$(CUDA_DOUBLES): $(DOUBLES_SRC)/cuda.c $(DOUBLES_DEPS)
	@mkdir -p $(@D)
	$(CC) $(DOUBLES_CFLAGS) $(DOUBLES_VARIANT) -Wl,-soname,$(@F) -o $@ $< $(DOUBLES_CORE)

$(HSA_DOUBLES): $(DOUBLES_SRC)/hsa.c gpualloc/rocm/abi_hsa.h $(DOUBLES_DEPS) $(RUNTIMES)/.done
	@mkdir -p $(@D)
	$(CC) $(DOUBLES_CFLAGS) $(DOUBLES_VARIANT) -isystem $(RUNTIMES)/usr/include -Wl,--version-script,$(DOUBLES_SRC)/hsa.map -Wl,-soname,$(@F) -o $@ $< $(DOUBLES_CORE)

$(ZE_DOUBLES): $(DOUBLES_SRC)/ze.c gpualloc/levelzero/abi_ze.h $(DOUBLES_DEPS) $(RUNTIMES)/.done
	@mkdir -p $(@D)
	$(CC) $(DOUBLES_CFLAGS) -isystem $(RUNTIMES)/usr/include -Wl,-soname,$(@F) -o $@ $< $(DOUBLES_CORE)

$(NVML_DOUBLE): gpualloc/nvml/testdata/nvml.c mk/doubles.mk
	@mkdir -p $(@D)
	$(CC) $(DOUBLES_CFLAGS) -Wl,-soname,$(@F) -o $@ $<

$(DOUBLES)/cuda-old/%: DOUBLES_VARIANT := -DOLD
$(DOUBLES)/cuda-ancient/%: DOUBLES_VARIANT := -DOLD -DANCIENT
$(DOUBLES)/hsa-v1/%: DOUBLES_VARIANT := -DV1

$(CUDA_DOUBLES) $(HSA_DOUBLES) $(ZE_DOUBLES) $(NVML_DOUBLE): | setup

.PHONY: doubles
doubles: $(CUDA_DOUBLES) $(HSA_DOUBLES) $(ZE_DOUBLES) $(NVML_DOUBLE) ## build the doubles of GPU vendors' libraries

# The tests of the runtimes need them, on the host and in the VM.
unit busy vm-test: doubles
