// SPDX-License-Identifier: Apache-2.0

package rocm

import "errors"

// ErrNotBuilt is the error of a build without cgo.
var ErrNotBuilt = errors.New("built without cgo: no ROCm")

type (
	agent   uint64  // hsa_agent_t
	pool    uint64  // hsa_amd_memory_pool_t
	pointer uintptr // a device address
)

// pointerInfo is what the runtime knows of an address: hsa_amd_pointer_info_t.
type pointerInfo struct {
	kind  int // hsa_amd_pointer_type_t
	base  pointer
	size  uint64
	owner agent
}

// driver is one loaded libhsa-runtime64, one method for one of its functions.
type driver interface {
	path() string
	hasFlags() bool // hsa_amd_portable_export_dmabuf_v2 is there

	init() Status
	agents() ([]agent, Status)
	agentUint(agent, int) (uint64, Status)
	agentString(a agent, attr, length int) (string, Status)
	pools(agent) ([]pool, Status)
	poolUint(pool, int) (uint64, Status)
	alloc(p pool, size uint64) (pointer, Status)
	free(pointer) Status
	fill(p pointer, value uint32, words uint64) Status
	toHost(to []byte, from pointer) Status
	toDevice(to pointer, from []byte) Status
	pointerInfo(pointer) (pointerInfo, Status)
	export(p pointer, size, flags uint64) (fd int, offset uint64, s Status)
	closeDMABuf(fd int) Status
}

// The attributes that the methods read, by the numbers of abi_hsa.h.
const (
	agentName         = 0
	agentDevice       = 17
	agentBDF          = 0xa006
	agentProductName  = 0xa009
	agentDomain       = 0xa00f
	agentUUID         = 0xa011
	agentMemoryAvail  = 0xa015
	deviceTypeGPU     = 1
	segmentGlobal     = 0
	poolSegment       = 0
	poolFlags         = 1
	poolSize          = 2
	poolAllocAllowed  = 5
	poolAllocGranule  = 6
	poolCoarseGrained = 4
	pointerUnknown    = 0
	pointerLocked     = 2
)
