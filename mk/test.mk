# SPDX-License-Identifier: Apache-2.0
#
# `make test`: everything that CI runs, in the order in which it is quickest to
# learn of a mistake.

# VM_JOBS kernels are tested at once, each on VM_MACHINES machines. Tests wait for a part of
# their time, so that four machines keep two processors busy. With six, the same tests take an
# eighth more processor time, since emulated machines displace one another's code in the caches.
# KERNELS begins with the kernel that takes longest.
VM_JOBS ?= 2
VM_MACHINES ?= 2
# After this time a package's tests on one machine count as hung. Four machines share two processors.
VM_TIMEOUT ?= 60m

# `make test` leaves these tests to `make test-whole`, as "PACKAGE TEST", because all tests on four
# kernels take longer than CI has. The tests of VM_LONG take longest, and are left out on all kernels;
# each other test runs on another kernel, or on another machine (TestLeftOutRunsElsewhere).
# Most tests find no difference between 7.2 and 7.3 and run on 7.3. On 7.2 runs a part of the tests
# of these kernels' decisions and reports, and of our changes to its rdma_rxe.
VM_LONG := trace TestVM(HundredThousand|StrippedBTF|StrippedTranslated|StrippedDetour)\b|cmd/p2pcheck TestVMRuntimeRemedies\b|cmd/dmabuf-reg TestVM(Locate|StrippedBTF|StrippedLocate|TraceFilters)\b|internal/engine TestVMTwoNamespaces\b|gpualloc TestVMGPUScale\b
VM_LEFT_7.3 := p2p TestVMDecision@(fabric|fabric\+Nehalem|fabric\+EPYC\+pt|fabric\+EPYC\+iommu\+noredir|fabric\+Skylake-Server\+iommu)(/|$$)|p2p TestVMNested\b|p2p/live TestVMAgree@(fabric\+EPYC\+iommu|nested\+Nehalem\+iommu)(/|$$)|cmd/p2pcheck TestVMRemedy\b|trace TestVMDetour\b|trace TestVM(Privileges|StockStripped|TenThousand|ReloadedWithoutBTF|UnknownTypes|InventoryAddressAgain|UverbsComesMeanwhile)\b|cmd/p2pcheck TestVMLive\b|cmd/dmabuf-reg TestVM(TraceForeignInTheMiddle|TraceModuleComesLater|ConnectTraced|BenchFlap|BenchFlapInterrupted|BenchFlapNotAllowed)\b|internal/conformance TestVMRails(Random|Share)\b|internal/engine TestVM(BufferProve|TwoProcesses)\b|drm TestVMLayoutOfGPUDrivers\b|peers (perftest|pyverbs|rxe-provider)\b
VM_LEFT_7.2 := p2p TestVMDecision@(fabric|fabric\+EPYC|fabric\+EPYC\+pt|fabric\+EPYC\+iommu|fabric\+EPYC\+iommu\+noredir|fabric\+Skylake-Server\+iommu)(/|$$)|p2p/live TestVMAgree@(fabric\+EPYC|fabric\+EPYC\+iommu)$$|p2p/live TestVMProve\b|p2p TestVMSuspended\b|cmd/p2pcheck TestVM(Live|P2PCheck|PassThrough@fabric\+EPYC\+pt|PassThrough@fabric\+EPYC\+iommu|StockP2PCheck)(/|$$)|trace TestVM(Bounced|Cgroup|ClearAnswers|DisplayBAR|Exports|Filters|InventoryAddressAgain|InventoryMeanwhile|InventoryOfMany|KretprobesMissed|LastLockdown|LateWithoutBTF|Loss|Privileges|ReaderGoesOn|Reclaim|ReloadedWithoutBTF|SameErrno|ScatterLists|ScatterListsTranslated|StockNoDriverOp|StockStripped|Symbols|TenThousand|UnknownTypes|UverbsComesMeanwhile|VFIO|Volume|Walk|WalkPages)(/|$$)|trace TestVM(Truth|Revoked)\b|ibvfd TestVM(GPUAccessErrors|GPUTwoProcesses|GPUDatagrams|GPUSharedReceives|GPUAtomicWrite|PinnedForAnotherNIC)(/|$$)|ibvfd TestVM(Concurrent|ConcurrentWaits|FlushNewerLibrary|ManyCycles|SameAsTheCProgram|StockHasNoDriverOp)(/|$$)|(canary|cmd/dmabuf-reg|cmd/hardware-test|dmabuf|drm|examples/fanin|examples/hello|examples/kvmove|examples/twoprocesses|fi|gpualloc|gpualloc/cuda|gpualloc/levelzero|gpualloc/rocm|ibvfd/cm|ibvfd/uverbs|internal/conformance|internal/dcb|internal/engine|internal/memory|internal/netdev|internal/rdmanl) TestVM|(ibvfd|trace) TestVMInPlace|peers (c-program|demo|kernel-exporters|kernel-selftest-rereg|kernel-selftest-stock|pair|perftest|pingpong|pyverbs|rxe-provider|vram-pair)\b
VM_LEFT_6.12 := (gpualloc|ibvfd) TestVMConcurrent|internal/conformance TestVMConformance\b|gpualloc TestVMGPURegister\b|internal/engine TestVM(GPUOperations|RemoteRefusals|Operations|RandomOperations|ForgedToken|MessagesOfLayouts|PeerVanishes|ConcurrentUse|LinkDown|SecondNICOverRDMACM|Examples)\b|canary TestVM(EveryExporterIsVerified|VendorRuntimes|NothingIsLeftBehind|VendorMemoryOfTheCaller|SeedRepeatsARun)\b|trace TestVM(ClearAnswers|InventoryOfMany|InventoryMeanwhile|KretprobesMissed|ReaderGoesOn|Cgroup|LateWithoutBTF|Loss|Filters|LastLockdown)\b|examples/(hello|kvmove|twoprocesses) TestVM|cmd/dmabuf-reg TestVM(ServeConnect|ServeConnectTLS|NetDeviceDownMidTransfer|VerifyTable|NoRDMADevice|ConnectInterrupted|NoPermission|Mesh|VerifyNoGPU|TLSPage|TraceForeign|TraceForeignInTheMiddle|TraceInTheMiddle|TraceModuleComesLater|ConnectFindsWrongBytes|RegisterTraced|ExplainForeign|SignalsMidTransfer|VerifyAll|SeveralNICs|SeveralNICsPeerGone|DeviceDeletedMidTransfer|TraceInContainer|BadInput|FailoverPage|BenchmarkPage)\b|examples/fanin TestVMFanin\b|ibvfd TestVMSameAsTheCProgram\b|canary TestVMSegments\b|internal/conformance TestVMRails(FailOver|LatePacket|OwnWays)\b|trace TestVM(TenThousand|ReloadedWithoutBTF|Privileges|UnknownTypes|UverbsComesMeanwhile)\b|cmd/p2pcheck TestVMP2PCheck\b|peers (c-program|perftest|pyverbs)\b
VM_LEFT_6.1 := cmd/dmabuf-reg TestVM(TraceForeign|ConnectFindsWrongBytes|ConnectInterrupted|RegisterTraced|ExplainForeign)\b|trace TestVM(Volume|ClearAnswers)\b|ibvfd TestVMManyCycles\b
VM_LEFT = ^($(VM_LONG)$(if $(VM_LEFT_$(KERNEL)),|$(VM_LEFT_$(KERNEL))))
# yes: leave these tests out.
LEAVE ?= no
# Tests that are left out if libfabric 2 could not be had, or was not built.
VM_NEEDS_LIBFABRIC := fi TestVMLibfabric2\b
# Tests that are left out if libibverbs with the patched provider was not built.
VM_NEEDS_PROVIDER := peers rxe-provider\b
VM_SKIP = $(or $(if $(filter yes,$(LEAVE)),$(VM_LEFT)),^$$)$(if $(wildcard $(BUILD)/libfabric/version),,|^$(VM_NEEDS_LIBFABRIC))$(if $(wildcard $(BUILD)/rxe-provider/*/version),,|^$(VM_NEEDS_PROVIDER))
# How many processors an emulated machine has, except in tests that need several. With
# two each, emulated machines wait for each other's processors, and take twice as long.
VM_CPUS ?= 1

# setup.sh has installed the C headers: a test that misses one fails instead of
# skipping.
test: export GPURDMA_NEED_HEADERS := 1

TEST_LEAVES := $(if $(filter test-whole,$(MAKECMDGOALS)),no,yes)
STEP := BUILD=$(BUILD) script/step
.PHONY: test
test: ## set up and run all the tests: host, cross builds, and each kernel's VM
	@rm -f $(BUILD)/steps $(BUILD)/failures
	@$(STEP) set-up env BUILD=$(BUILD) testbed/setup.sh test
	@$(STEP) testbed $(MAKE) --no-print-directory testbed
	@$(STEP) doubles $(MAKE) --no-print-directory doubles
	@$(MAKE) --no-print-directory test-host LEAVE=$(TEST_LEAVES)
	@rm -f $(BUILD)/testbed/*/tally* $(BUILD)/testbed/*/softgpu-vm.log
	@status=0; export GPURDMA_TEST_BUILD=$$$$-$$(date +%s); \
		printf '%s\n' $(KERNELS) arm64 testbed | xargs -P $(VM_JOBS) -I {} $(SHELL) $(.SHELLFLAGS) \
			'$(MAKE) --no-print-directory test-on-{} LEAVE=$(TEST_LEAVES) 2>&1 | sed -u "s/^/{}: /"' || status=1; \
		BUILD=$(BUILD) testbed/tally.sh $$status $(KERNELS) arm64

.PHONY: test-on-arm64 test-on-testbed
test-on-%:
	@$(MAKE) --no-print-directory vm-test KERNEL=$* IF_AVAILABLE=-if-available
test-on-arm64:
	@$(MAKE) --no-print-directory arm64-boot IF_AVAILABLE=yes
test-on-testbed:
	@$(MAKE) --no-print-directory vm-selftest

# The steps that need no virtual machine. Go's part runs beside the kernels and the C programs,
# which wait for downloads and mostly have one compiler at work.
.PHONY: test-host test-go test-c
test-host:
	@status=0; \
		{ $(MAKE) --no-print-directory test-c 2>&1 | sed -u "s/^/C: /"; } & c=$$!; \
		$(MAKE) --no-print-directory test-go || status=1; \
		wait $$c || status=1; \
		if [ $$status -ne 0 ] && [ -s $(BUILD)/failures ]; then echo; cat $(BUILD)/failures; fi; \
		exit $$status

test-go:
	@$(STEP) lint $(MAKE) --no-print-directory lint
	@$(STEP) 'dead functions' $(MAKE) --no-print-directory deadcode
	@$(STEP) 'cross builds' $(MAKE) --no-print-directory cross
	@$(STEP) 'commands and glibc' $(MAKE) --no-print-directory build glibc-check
	@$(STEP) 'unit tests' $(MAKE) --no-print-directory unit

test-c:
	@$(STEP) 'kernels, checkpatch and sparse' $(MAKE) --no-print-directory checkpatch sparse
	@$(STEP) 'RDMA cores' $(MAKE) --no-print-directory $(patsubst %,rdma-core-of-%,$(KERNELS))
	@$(STEP) 'C programs' $(MAKE) --no-print-directory cprog
	@$(STEP) 'libfabric and provider' $(MAKE) --no-print-directory libfabric rxe-provider IF_AVAILABLE=yes

# Builds the RDMA core that a kernel's tests need, if the kernel could be had.
rdma-core-of-%:
	@[ -z "$(call REREG,$*)" ] || [ ! -e $(BUILD)/kernels/$*/version ] || $(MAKE) --no-print-directory kernel-rereg KERNEL=$*

.PHONY: test-whole
test-whole: test ## make test with the tests that take too long for CI

# Tests run with our modules first. Tests named TestVMStock run in a boot of their own with
# stock rxe, which really refuses dma-bufs. Then the software GPU's suite in C runs.
# With IF_AVAILABLE, a kernel that cannot be had here is reported, and no failure.
IF_AVAILABLE ?=
# `make test` leaves the software GPU's suite in C out where 7.3's run of it shows the same.
SOFTGPU_LEFT := 7.2
SOFTGPU_HERE = $(if $(filter yes,$(LEAVE)),$(filter-out $(SOFTGPU_LEFT),$(SOFTGPU_VM)),$(SOFTGPU_VM))
# More arguments of `testbed test`: -passed FILE, -run RE, packages.
VMTESTFLAGS ?=

.PHONY: vm-test
vm-test: ## run the VM tests and the peer suites on KERNEL
	@$(MAKE) --no-print-directory testbed
	@status=0; $(TESTBED) fetch -kernel $(KERNEL) -if-missing || status=$$?; \
		if [ $$status -eq 0 ]; then \
			$(MAKE) --no-print-directory vm-build $(VM_REREG) && testbed/selftest/series.sh $(KERNEL); \
		else [ -n "$(IF_AVAILABLE)" ] && [ $$status -eq 77 ]; fi
	@status=0; \
		$(TESTBED) test -kernel $(KERNEL) -patched-rxe -cpus $(VM_CPUS) -parallel $(VM_MACHINES) -timeout $(VM_TIMEOUT) $(IF_AVAILABLE) -skip '$(VM_SKIP)' $(VMTESTFLAGS) || status=$$?; \
		if [ -n "$(SOFTGPU_HERE)" ] && [ -e $(BUILD)/kernels/$(KERNEL)/version ]; then \
			$(MAKE) --no-print-directory softgpu-vm 2>&1 | sed -u "s/^/softgpu: /" || status=$$?; \
			$(MAKE) --no-print-directory softgpu-tally; \
		fi; \
		exit $$status

# Links are cut a thousand times in memory, and a hundred times in a virtual machine.
.PHONY: soak
soak: ## lose links of connections that outlive them for long, in memory and in the testbed
	GPURDMA_SOAK=1 $(GO) test -count=1 -timeout 2h -v -run '^TestOutlive(Cuts|LatePackets|Messages|Random)$$' .
	GPURDMA_SOAK=1 $(GO) test -count=1 -timeout 2h -v -run '^Test(Rails|Verify)' ./internal/conformance
	GPURDMA_SOAK=1 $(GO) test -count=1 -timeout 2h -v -run '^TestManyNodes' ./internal/mesh
	@GPURDMA_SOAK=1 $(MAKE) --no-print-directory vm-test SOFTGPU_VM= \
		VMTESTFLAGS='-required=false -run "TestVMRails|TestVMVerify|TestVMConformance/Outlive" ./internal/conformance'
	@GPURDMA_SOAK=1 $(MAKE) --no-print-directory vm-test KERNEL=7.3 \
		VMTESTFLAGS='-required=false -run "^TestVMInPlace" ./ibvfd ./internal/conformance'

# The RDMA core that re-registers dma-bufs takes two minutes to build: of the kernels of `make test`
# only 7.3 gets it.
REREG = $(if $(filter $(if $(filter yes,$(LEAVE)),7.3,7.2 7.3),$(1)),kernel-rereg)
VM_REREG = $(call REREG,$(KERNEL))

# Builds the modules and programs that the tests in the guest use.
.PHONY: vm-build
vm-build: kernel cprog build $(if $(SOFTGPU_VM),softgpu) $(if $(filter 7.%,$(KERNEL)),two-machines)

# The engine's tests, whose two processes a peer suite runs on two machines.
.PHONY: two-machines
two-machines:
	@mkdir -p $(BUILD)/bin
	$(GUEST_GO) $(GO) test -c -o $(BUILD)/bin/two-machines.test ./internal/engine
