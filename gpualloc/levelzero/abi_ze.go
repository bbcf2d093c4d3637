// SPDX-License-Identifier: Apache-2.0

package levelzero

// Source of all names and numbers: ze_api.h of Level Zero.

const (
	externalTypeDMABuf = 2 // ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF
	deviceTypeGPU      = 1 // ZE_DEVICE_TYPE_GPU
	deviceIntegrated   = 1 // ZE_DEVICE_PROPERTY_FLAG_INTEGRATED
	memoryUnknown      = 0 // ZE_MEMORY_TYPE_UNKNOWN
	memoryDevice       = 2 // ZE_MEMORY_TYPE_DEVICE
	memoryShared       = 3 // ZE_MEMORY_TYPE_SHARED
)

// Result is a ze_result_t. It is an error; the zero value is success.
type Result int32

// The results that this package and its callers test for.
const (
	Success                 Result = 0
	DeviceLost              Result = 0x70000001
	OutOfHostMemory         Result = 0x70000002
	OutOfDeviceMemory       Result = 0x70000003
	InsufficientPermissions Result = 0x70010000
	NotAvailable            Result = 0x70010001
	DependencyUnavailable   Result = 0x70020000
	Uninitialized           Result = 0x78000001
	UnsupportedVersion      Result = 0x78000002
	UnsupportedFeature      Result = 0x78000003
	InvalidArgument         Result = 0x78000004
	InvalidNullHandle       Result = 0x78000005
	InvalidNullPointer      Result = 0x78000007
	InvalidSize             Result = 0x78000008
	UnsupportedSize         Result = 0x78000009
	UnsupportedAlignment    Result = 0x7800000a
	InvalidEnumeration      Result = 0x7800000c
	UnsupportedEnumeration  Result = 0x7800000d
	Unknown                 Result = 0x7ffffffe
)

var resultNames = map[Result]string{
	Success:                 "ZE_RESULT_SUCCESS",
	1:                       "ZE_RESULT_NOT_READY",
	DeviceLost:              "ZE_RESULT_ERROR_DEVICE_LOST",
	OutOfHostMemory:         "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY",
	OutOfDeviceMemory:       "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
	0x70000006:              "ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET",
	0x70000007:              "ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE",
	InsufficientPermissions: "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS",
	NotAvailable:            "ZE_RESULT_ERROR_NOT_AVAILABLE",
	DependencyUnavailable:   "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE",
	Uninitialized:           "ZE_RESULT_ERROR_UNINITIALIZED",
	UnsupportedVersion:      "ZE_RESULT_ERROR_UNSUPPORTED_VERSION",
	UnsupportedFeature:      "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE",
	InvalidArgument:         "ZE_RESULT_ERROR_INVALID_ARGUMENT",
	InvalidNullHandle:       "ZE_RESULT_ERROR_INVALID_NULL_HANDLE",
	0x78000006:              "ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE",
	InvalidNullPointer:      "ZE_RESULT_ERROR_INVALID_NULL_POINTER",
	InvalidSize:             "ZE_RESULT_ERROR_INVALID_SIZE",
	UnsupportedSize:         "ZE_RESULT_ERROR_UNSUPPORTED_SIZE",
	UnsupportedAlignment:    "ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT",
	InvalidEnumeration:      "ZE_RESULT_ERROR_INVALID_ENUMERATION",
	UnsupportedEnumeration:  "ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION",
	Unknown:                 "ZE_RESULT_ERROR_UNKNOWN",
}
