// SPDX-License-Identifier: Apache-2.0

package uverbs

// form is how an attribute carries its value. It is what the kernel's
// UVERBS_ATTR_* macros declare for the method.
type form uint8

const (
	formObject form = iota // handle in data, length 0 (UVERBS_ATTR_IDR)
	formNew                // the kernel puts the new object's handle in data
	formIn                 // input of up to 8 bytes, which lies in data itself (UVERBS_ATTR_PTR_IN, CONST_IN, FLAGS_IN; RAW_FD of length 0)
	formOut                // pointer to output
	formBlock              // pointer to an input of more than 8 bytes, which lies in request.block
)

// field declares one attribute of a method.
type field struct {
	id   uint16
	form form
	size uint16 // bytes; 0 for objects and descriptors
}

// method is a request with everything but its values.
type method struct {
	hdr   ioctlHdr
	attrs [maxAttrs]attr
	outs  []int // the attributes of form out
	block int   // the attribute of form block, -1 without one
	spare [spares]request
}

// declare makes a method. The attributes' order is that of the arguments.
func declare(object, id uint16, fields ...field) *method {
	m := &method{hdr: ioctlHdr{objectID: object, methodID: id, numAttrs: uint16(len(fields))}, block: -1}
	m.hdr.length = hdrSize + uint16(len(fields))*attrSize
	for i, f := range fields {
		m.attrs[i] = attr{attrID: f.id, len: f.size, flags: attrMandatory}
		switch f.form {
		case formOut:
			m.outs = append(m.outs, i)
		case formBlock:
			m.block = i
		}
	}
	forever.Pin(m)
	for i := range m.spare {
		m.spare[i].complete(m)
	}
	return m
}

// The methods this package calls. Sources: uverbs_std_types_device.c and
// uverbs_std_types_mr.c in drivers/infiniband/core.
var (
	getContext = declare(objectDevice, methodGetContext,
		field{attrGetContextNumCompVectors, formOut, 4},
		field{attrGetContextCoreSupport, formOut, 8},
	)
	invokeAllocPD = declare(objectDevice, methodInvokeWrite,
		field{attrCoreIn, formIn, 8}, // struct ib_uverbs_alloc_pd
		field{attrCoreOut, formOut, 4},
		field{attrWriteCmd, formIn, 8},
	)
	invokeDeallocPD = declare(objectDevice, methodInvokeWrite,
		field{attrCoreIn, formIn, 4}, // struct ib_uverbs_dealloc_pd
		field{attrWriteCmd, formIn, 8},
	)
	regDMABufMR = declare(objectMR, methodRegDMABufMR,
		field{attrRegHandle, formNew, 0},
		field{attrRegPD, formObject, 0},
		field{attrRegOffset, formIn, 8},
		field{attrRegLength, formIn, 8},
		field{attrRegIOVA, formIn, 8},
		field{attrRegFD, formIn, 4},
		field{attrRegAccess, formIn, 4},
		field{attrRegLKey, formOut, 4},
		field{attrRegRKey, formOut, 4},
	)
	reregDMABufMR = declare(objectMR, methodReregDMABufMR,
		field{attrReregHandle, formObject, 0},
		field{attrReregPD, formObject, 0},
		field{attrReregOffset, formIn, 8},
		field{attrReregLength, formIn, 8},
		field{attrReregIOVA, formIn, 8},
		field{attrReregFD, formIn, 0}, // UVERBS_ATTR_RAW_FD
		field{attrReregAccess, formIn, 4},
	)
	queryMR = declare(objectMR, methodQueryMR,
		field{attrQueryMRHandle, formObject, 0},
		field{attrQueryMRLKey, formOut, 4},
		field{attrQueryMRRKey, formOut, 4},
		field{attrQueryMRLength, formOut, 8},
		field{attrQueryMRIOVA, formOut, 8},
	)
	invokeReregMR = declare(objectDevice, methodInvokeWrite,
		field{attrCoreIn, formBlock, reregMRSize},
		field{attrCoreOut, formOut, reregMRRespSize},
		field{attrWriteCmd, formIn, 8},
	)
	// noSuchObject reaches the check of the driver's number, and no further.
	noSuchObject = declare(objectNone, 0)
	destroyMR    = declare(objectMR, methodMRDestroy,
		field{attrDestroyMRHandle, formObject, 0},
	)
)
