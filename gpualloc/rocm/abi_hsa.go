// SPDX-License-Identifier: Apache-2.0

package rocm

// Source of all names and numbers: hsa.h and hsa_ext_amd.h of the ROCm runtime.

const (
	mappingTypePCIe = 1 // HSA_AMD_DMABUF_MAPPING_TYPE_PCIE
	uuidLen         = 64
	nameLen         = 64
)

// Status is an hsa_status_t. It is an error; the zero value is success.
type Status int32

// The statuses that this package and its callers test for.
const (
	Success            Status = 0
	Error              Status = 0x1000
	InvalidArgument    Status = 0x1001
	InvalidAllocation  Status = 0x1003
	InvalidAgent       Status = 0x1004
	OutOfResources     Status = 0x1008
	ResourceFree       Status = 0x100a
	NotInitialized     Status = 0x100b
	RefcountOverflow   Status = 0x100c
	Fatal              Status = 0x1026
	InvalidMemoryPool  Status = 40
	MemoryFault        Status = 43
	ApertureViolation  Status = 41
	IllegalInstruction Status = 42
)

var statusNames = map[Status]string{
	Success:            "HSA_STATUS_SUCCESS",
	1:                  "HSA_STATUS_INFO_BREAK",
	Error:              "HSA_STATUS_ERROR",
	InvalidArgument:    "HSA_STATUS_ERROR_INVALID_ARGUMENT",
	0x1002:             "HSA_STATUS_ERROR_INVALID_QUEUE_CREATION",
	InvalidAllocation:  "HSA_STATUS_ERROR_INVALID_ALLOCATION",
	InvalidAgent:       "HSA_STATUS_ERROR_INVALID_AGENT",
	0x1005:             "HSA_STATUS_ERROR_INVALID_REGION",
	OutOfResources:     "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
	ResourceFree:       "HSA_STATUS_ERROR_RESOURCE_FREE",
	NotInitialized:     "HSA_STATUS_ERROR_NOT_INITIALIZED",
	RefcountOverflow:   "HSA_STATUS_ERROR_REFCOUNT_OVERFLOW",
	0x100d:             "HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS",
	0x100e:             "HSA_STATUS_ERROR_INVALID_INDEX",
	0x1016:             "HSA_STATUS_ERROR_EXCEPTION",
	0x1025:             "HSA_STATUS_ERROR_INVALID_RUNTIME_STATE",
	Fatal:              "HSA_STATUS_ERROR_FATAL",
	InvalidMemoryPool:  "HSA_STATUS_ERROR_INVALID_MEMORY_POOL",
	ApertureViolation:  "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION",
	IllegalInstruction: "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION",
	MemoryFault:        "HSA_STATUS_ERROR_MEMORY_FAULT",
}
