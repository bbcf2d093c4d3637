// SPDX-License-Identifier: Apache-2.0

package uverbs

// form is how an attribute carries its value. It is what the kernel's
// UVERBS_ATTR_* macros declare for the method.
type form uint8

const (
	formObject form = iota // handle in data, length 0 (UVERBS_ATTR_IDR)
	formNew                // the kernel puts the new object's handle in data
	formIn                 // input of up to 8 bytes, which lies in data itself (UVERBS_ATTR_PTR_IN, CONST_IN, FLAGS_IN, RAW_FD)
	formOut                // pointer to output
)

// field declares one attribute of a method.
type field struct {
	id   uint16
	form form
	size uint16 // bytes; 0 for objects
}

// method declares a request: what the encoder writes, in this order.
type method struct {
	object, id uint16
	fields     []field
}

// The methods this package calls. Sources: uverbs_std_types_device.c and
// uverbs_std_types_mr.c in drivers/infiniband/core.
var (
	getContext = method{objectDevice, methodGetContext, []field{
		{attrGetContextNumCompVectors, formOut, 4},
		{attrGetContextCoreSupport, formOut, 8},
	}}
	invokeAllocPD = method{objectDevice, methodInvokeWrite, []field{
		{attrCoreIn, formIn, 8}, // struct ib_uverbs_alloc_pd
		{attrCoreOut, formOut, 4},
		{attrWriteCmd, formIn, 8},
	}}
	invokeDeallocPD = method{objectDevice, methodInvokeWrite, []field{
		{attrCoreIn, formIn, 4}, // struct ib_uverbs_dealloc_pd
		{attrWriteCmd, formIn, 8},
	}}
	regDMABufMR = method{objectMR, methodRegDMABufMR, []field{
		{attrRegHandle, formNew, 0},
		{attrRegPD, formObject, 0},
		{attrRegOffset, formIn, 8},
		{attrRegLength, formIn, 8},
		{attrRegIOVA, formIn, 8},
		{attrRegFD, formIn, 4},
		{attrRegAccess, formIn, 4},
		{attrRegLKey, formOut, 4},
		{attrRegRKey, formOut, 4},
	}}
	queryMR = method{objectMR, methodQueryMR, []field{
		{attrQueryMRHandle, formObject, 0},
		{attrQueryMRLKey, formOut, 4},
		{attrQueryMRRKey, formOut, 4},
		{attrQueryMRLength, formOut, 8},
		{attrQueryMRIOVA, formOut, 8},
	}}
	// noSuchObject reaches the check of the driver's number, and no further.
	noSuchObject = method{object: objectNone}
	destroyMR    = method{objectMR, methodMRDestroy, []field{
		{attrDestroyMRHandle, formObject, 0},
	}}
)
