// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"os"
	"runtime"
	"structs"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// What of include/uapi/rdma/ib_user_ioctl_cmds.h and ib_user_ioctl_verbs.h makes objects
// of Linux 7.3 whose memory is a dma-buf, and dma-bufs of a NIC's own memory.

const (
	uverbsObjectCQ       = 3  // UVERBS_OBJECT_CQ
	uverbsObjectQP       = 4  // UVERBS_OBJECT_QP
	uverbsObjectDMABuf   = 18 // UVERBS_OBJECT_DMABUF
	uverbsObjectCompCntr = 19 // UVERBS_OBJECT_COMP_CNTR

	uverbsMethodCreate = 0 // UVERBS_METHOD_{CQ,QP,COMP_CNTR}_CREATE, UVERBS_METHOD_DMABUF_ALLOC

	uverbsBufferDMABuf = 0       // IB_UVERBS_BUFFER_TYPE_DMABUF
	uverbsQPTypeRC     = 2       // IB_UVERBS_QPT_RC
	uverbsDriverAttr   = 1 << 12 // UVERBS_ID_NS_SHIFT: the first attribute of the driver's own

	compCntrBuffer    = uverbsDriverAttr     // TESTNIC_COMP_BUFFER of kernel/testnic
	compCntrErrBuffer = uverbsDriverAttr + 1 // TESTNIC_ERR_BUFFER
)

// UVERBS_ATTR_CREATE_CQ_…
const (
	createCQHandle     = 0
	createCQEntries    = 1
	createCQUserHandle = 2
	createCQVector     = 4
	createCQRespCQE    = 6
	createCQFD         = 10 // BUFFER_FD
	createCQLength     = 9  // BUFFER_LENGTH
	createCQOffset     = 11 // BUFFER_OFFSET
	createCQUmem       = 12 // BUF_UMEM
)

// UVERBS_ATTR_CREATE_QP_…
const (
	createQPHandle     = 0
	createQPPD         = 2
	createQPSendCQ     = 4
	createQPRecvCQ     = 5
	createQPUserHandle = 7
	createQPCap        = 8
	createQPType       = 9
	createQPRespCap    = 13
	createQPRespNumber = 14
	createQPUmem       = 15 // BUF_UMEM
	createQPRQUmem     = 16 // RQ_BUF_UMEM
	createQPSQUmem     = 17 // SQ_BUF_UMEM
)

// struct ib_uverbs_buffer_desc
type bufferDesc struct {
	_             structs.HostLayout
	Type          uint32
	FD            int32
	Flags         uint32
	OptionalFlags uint32
	Addr          uint64 // the offset in a dma-buf
	Length        uint64
}

// struct ib_uverbs_qp_cap
type qpCap struct {
	_                       structs.HostLayout
	SendWR, RecvWR, SendSGE uint32
	RecvSGE, InlineData     uint32
}

// longCall is uverbsCall with room for a queue pair's attributes.
type longCall struct {
	_    structs.HostLayout
	Head [24]byte
	_    [0]uint64
	Args [16]uverbsAttr
}

// verbsCall is a call that is being made: its attributes, and what they point at.
type verbsCall struct {
	object, method uint16
	attrs          []uverbsAttr
	pins           runtime.Pinner
}

// value is an attribute of up to 8 bytes; an object's or a descriptor's has size 0.
func (c *verbsCall) value(id, size uint16, v uint64) {
	c.attrs = append(c.attrs, uverbsAttr{ID: id, Len: size, Flags: attrMandatory, Data: v})
}

// at is an attribute that the kernel reads or writes where p points.
func at[T any](c *verbsCall, id uint16, p *T) {
	c.pins.Pin(p)
	c.value(id, uint16(unsafe.Sizeof(*p)), uint64(uintptr(unsafe.Pointer(p))))
}

// do makes the call and returns what the kernel put into the first attribute: the new
// object's handle, or its descriptor.
func (d device) do(node string, c *verbsCall) (uint32, error) {
	defer c.pins.Unpin()
	driver, err := d.Identify()
	if err != nil {
		return 0, err
	}
	f := descriptorOf(node)
	if f == nil {
		return 0, fmt.Errorf("%s is not open", node)
	}
	defer f.Close()
	call := new(longCall)
	c.pins.Pin(call)
	head := (*uverbsCall)(unsafe.Pointer(call))
	head.Object, head.Method, head.Driver = c.object, c.method, driver
	head.NumAttrs = uint16(copy(call.Args[:], c.attrs))
	head.Length = uint16(unsafe.Offsetof(call.Args) + uintptr(len(c.attrs))*unsafe.Sizeof(call.Args[0]))
	if err := ioctl.Kernel.Ioctl(int(f.Fd()), uverbs.VerbsIoctl, unsafe.Pointer(call)); err != nil {
		return 0, err
	}
	return uint32(call.Args[0].Data), nil
}

// umemOf is the whole of a dma-buf from an offset on.
func umemOf(fd int, offset, length uint64) *bufferDesc {
	return &bufferDesc{Type: uverbsBufferDMABuf, FD: int32(fd), Addr: offset, Length: length}
}

// createCQ makes a CQ of 8 entries; buffer adds where its memory is.
func (d device) createCQ(node string, buffer func(*verbsCall)) (uint32, error) {
	c := &verbsCall{object: uverbsObjectCQ, method: uverbsMethodCreate}
	var cqe uint32
	c.value(createCQHandle, 0, 0)
	c.value(createCQEntries, 4, 8)
	c.value(createCQUserHandle, 8, 0)
	c.value(createCQVector, 4, 0)
	at(c, createCQRespCQE, &cqe)
	buffer(c)
	return d.do(node, c)
}

// createQP makes an RC queue pair on a CQ.
func (d device) createQP(node string, cq uint32, buffers func(*verbsCall)) (uint32, error) {
	c := &verbsCall{object: uverbsObjectQP, method: uverbsMethodCreate}
	want, got := &qpCap{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1}, new(qpCap)
	var number uint32
	c.value(createQPHandle, 0, 0)
	c.value(createQPPD, 0, uint64(d.pd))
	c.value(createQPSendCQ, 0, uint64(cq))
	c.value(createQPRecvCQ, 0, uint64(cq))
	c.value(createQPUserHandle, 8, 0)
	at(c, createQPCap, want)
	c.value(createQPType, 8, uverbsQPTypeRC)
	at(c, createQPRespCap, got)
	at(c, createQPRespNumber, &number)
	buffers(c)
	return d.do(node, c)
}

// createCounter makes a completion counter whose two words are in dma-bufs.
func (d device) createCounter(node string, comp, err *bufferDesc) (uint32, error) {
	c := &verbsCall{object: uverbsObjectCompCntr, method: uverbsMethodCreate}
	c.value(0, 0, 0) // UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE
	at(c, compCntrBuffer, comp)
	at(c, compCntrErrBuffer, err)
	return d.do(node, c)
}

// exportNIC makes a dma-buf of the device's own memory.
func (d device) exportNIC(node string, offset uint64) (*os.File, error) {
	c := &verbsCall{object: uverbsObjectDMABuf, method: uverbsMethodCreate}
	c.value(0, 0, 0)      // UVERBS_ATTR_ALLOC_DMABUF_HANDLE
	c.value(1, 8, offset) // UVERBS_ATTR_ALLOC_DMABUF_PGOFF
	fd, err := d.do(node, c)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), "dma-buf of a NIC"), nil
}
