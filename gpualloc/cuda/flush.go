// SPDX-License-Identifier: Apache-2.0

package cuda

import "errors"

// ordering is what a GPU says of writes that other devices made to its memory.
type ordering struct {
	native  int // CUGPUDirectRDMAWritesOrdering: which readers see them in order without a flush
	options int // CUflushGPUDirectRDMAWritesOptions
}

// ordering asks. A driver before CUDA 11.3 knows neither attribute: nothing is
// promised, and nothing can be called.
func (s *session) ordering(d device) (o ordering, attr int, r Result) {
	for _, a := range []struct {
		attr int
		to   *int
	}{{attrWritesOrdering, &o.native}, {attrFlushWritesOptions, &o.options}} {
		if *a.to, r = s.drv.attribute(a.attr, d); r != Success && r != InvalidValue {
			return ordering{}, a.attr, r
		}
	}
	return o, 0, Success
}

// flush returns when what RDMA devices have written to the GPU's memory is
// visible to the GPU. Kernels that are launched later see it anyway; this is
// for those that run. errors.ErrUnsupported where CUDA has no such call for the
// GPU. It knows one way to the memory: where the PCIe mapping is a second one,
// CUDA promises an order that it does not have between the two
// (cuFlushGPUDirectRDMAWrites in the driver API reference), and part does not
// ask it.
func (s *session) flush(ctx contextHandle, d Device, on string) error {
	if d.writes.native >= writesOrderedForOwner {
		return nil // the call would do nothing
	}
	if d.writes.options&flushFromHost == 0 || s.drv.missing(flushFunction) {
		return errNoFlush
	}
	return failed(flushFunction, on, s.drv.flushWrites(ctx), "", "to the owner")
}

var errNoFlush = errors.Join(errors.New("this GPU does not order what RDMA devices write, and its driver has no call that waits for it"), errors.ErrUnsupported)
