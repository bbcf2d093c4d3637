// SPDX-License-Identifier: Apache-2.0

package cuda

// Source of all names and numbers: cuda.h of the CUDA toolkit, API 13.0.

// CUdevice_attribute
const (
	attrIntegrated         = 18  // CU_DEVICE_ATTRIBUTE_INTEGRATED
	attrMajor              = 75  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
	attrMinor              = 76  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
	attrVMM                = 102 // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
	attrGPUDirectRDMAVMM   = 110 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
	attrGPUDirectRDMA      = 116 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED
	attrFlushWritesOptions = 117 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, since 11.3
	attrWritesOrdering     = 118 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, since 11.3
	attrDMABufSupported    = 124 // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
	flushFromHost          = 1   // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, a bit
	writesOrderedForOwner  = 100 // CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER; more is for more GPUs
	versionOfDMABuf        = 11070
	versionOfPCIeMapping   = 12080
	rangeFlagPCIe          = 1 // CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE
	uuidLen                = 16
	pciBusIDLen            = 13 // "0000:00:00.0" and the zero
	nameLen                = 256
	pointerAttrSyncMemops  = 6 // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
)

// CUpointer_attribute
const (
	pointerContext       = 1  // CU_POINTER_ATTRIBUTE_CONTEXT
	pointerMemoryType    = 2  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
	pointerBufferID      = 7  // CU_POINTER_ATTRIBUTE_BUFFER_ID
	pointerIsManaged     = 8  // CU_POINTER_ATTRIBUTE_IS_MANAGED
	pointerDeviceOrdinal = 9  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
	pointerRDMACapable   = 15 // CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
)

// CUmemorytype
const (
	memoryTypeHost   = 1 // CU_MEMORYTYPE_HOST
	memoryTypeDevice = 2 // CU_MEMORYTYPE_DEVICE
)

// Result is a CUresult. It is an error; the zero value is success.
type Result int32

// The results that this package and its callers test for.
const (
	Success              Result = 0
	InvalidValue         Result = 1
	OutOfMemory          Result = 2
	NotInitialized       Result = 3
	Deinitialized        Result = 4
	StubLibrary          Result = 34
	DeviceUnavailable    Result = 46
	NoDevice             Result = 100
	InvalidDevice        Result = 101
	InvalidContext       Result = 201
	MapFailed            Result = 205
	UnsupportedLimit     Result = 215
	OperatingSystem      Result = 304
	InvalidHandle        Result = 400
	NotFound             Result = 500
	IllegalAddress       Result = 700
	ContextIsDestroyed   Result = 709
	NotPermitted         Result = 800
	NotSupported         Result = 801
	SystemNotReady       Result = 802
	SystemDriverMismatch Result = 803
	CompatNotSupported   Result = 804
	Unknown              Result = 999
)

var resultNames = map[Result]string{
	Success:              "CUDA_SUCCESS",
	InvalidValue:         "CUDA_ERROR_INVALID_VALUE",
	OutOfMemory:          "CUDA_ERROR_OUT_OF_MEMORY",
	NotInitialized:       "CUDA_ERROR_NOT_INITIALIZED",
	Deinitialized:        "CUDA_ERROR_DEINITIALIZED",
	StubLibrary:          "CUDA_ERROR_STUB_LIBRARY",
	DeviceUnavailable:    "CUDA_ERROR_DEVICE_UNAVAILABLE",
	NoDevice:             "CUDA_ERROR_NO_DEVICE",
	InvalidDevice:        "CUDA_ERROR_INVALID_DEVICE",
	102:                  "CUDA_ERROR_DEVICE_NOT_LICENSED",
	200:                  "CUDA_ERROR_INVALID_IMAGE",
	InvalidContext:       "CUDA_ERROR_INVALID_CONTEXT",
	MapFailed:            "CUDA_ERROR_MAP_FAILED",
	206:                  "CUDA_ERROR_UNMAP_FAILED",
	208:                  "CUDA_ERROR_ALREADY_MAPPED",
	211:                  "CUDA_ERROR_NOT_MAPPED",
	214:                  "CUDA_ERROR_ECC_UNCORRECTABLE",
	UnsupportedLimit:     "CUDA_ERROR_UNSUPPORTED_LIMIT",
	216:                  "CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
	217:                  "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
	219:                  "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT",
	220:                  "CUDA_ERROR_NVLINK_UNCORRECTABLE",
	301:                  "CUDA_ERROR_FILE_NOT_FOUND",
	302:                  "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
	303:                  "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
	OperatingSystem:      "CUDA_ERROR_OPERATING_SYSTEM",
	InvalidHandle:        "CUDA_ERROR_INVALID_HANDLE",
	401:                  "CUDA_ERROR_ILLEGAL_STATE",
	NotFound:             "CUDA_ERROR_NOT_FOUND",
	600:                  "CUDA_ERROR_NOT_READY",
	IllegalAddress:       "CUDA_ERROR_ILLEGAL_ADDRESS",
	701:                  "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
	702:                  "CUDA_ERROR_LAUNCH_TIMEOUT",
	708:                  "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
	ContextIsDestroyed:   "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	710:                  "CUDA_ERROR_ASSERT",
	711:                  "CUDA_ERROR_TOO_MANY_PEERS",
	714:                  "CUDA_ERROR_HARDWARE_STACK_ERROR",
	719:                  "CUDA_ERROR_LAUNCH_FAILED",
	NotPermitted:         "CUDA_ERROR_NOT_PERMITTED",
	NotSupported:         "CUDA_ERROR_NOT_SUPPORTED",
	SystemNotReady:       "CUDA_ERROR_SYSTEM_NOT_READY",
	SystemDriverMismatch: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
	CompatNotSupported:   "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
	805:                  "CUDA_ERROR_MPS_CONNECTION_FAILED",
	Unknown:              "CUDA_ERROR_UNKNOWN",
}
