// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
)

// Memory that an application allocated in a context of its own: everything about it
// is asked in that context, and not in the device's primary one.
func TestVMPointerOfAnotherContext(t *testing.T) {
	real := onGPU(t)
	if !real {
		udmabuf(t)
	}
	s := started(t)
	own := contextHandle(doubles.NewContext(t, 0))
	primary := retained(t, s, 0)
	neighbour := allocated(t, s, primary, 700) // of the primary context, in the same block
	p, r := s.drv.alloc(own, 300_001)          // freed with its context
	if r != Success {
		t.Fatal(r)
	}
	freed, r := s.drv.alloc(own, huge)
	if r != Success {
		t.Fatal(r)
	}
	if r := s.drv.free(own, freed); r != Success {
		t.Fatal(r)
	}
	want := doubles.Random(300_001)
	if r := s.drv.toDevice(own, p, want); r != Success {
		t.Fatal(r)
	}
	if !real { // or this proves nothing
		if _, _, r := s.drv.addressRange(primary, p); r != InvalidContext {
			t.Errorf("in the primary context: %v", r)
		}
	}
	log := doubles.Calls{}
	if !real {
		log = doubles.Log(t)
	}
	const at, length = 12_345, 54_321
	e, err := s.exportMemory(p+at, length, ExportOptions{Name: "theirs"}, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	seg := e.Segments()[0]
	if !real {
		doubles.Sees(t, seg.Buf, seg.Offset, want[at:at+length])
	}
	got := make([]byte, length)
	if _, err := e.ReadAt(got, 0); err != nil || !bytes.Equal(got, want[at:at+length]) {
		t.Errorf("the view shows other bytes, %v", err)
	}
	if err := e.FlushWrites(); err != nil && !(real && errors.Is(err, errors.ErrUnsupported)) {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if !real {
		log.Balanced(t, pairs)
	}

	_, err = s.exportMemory(freed, huge, ExportOptions{}, gpualloc.Env{})
	if !errors.Is(err, InvalidValue) && !errors.Is(err, failure.ErrRange) {
		t.Errorf("a freed pointer: %v", err)
	}
	doubles.Words(t, err, "freed")

	// Both contexts' memory is its own.
	for _, m := range []struct {
		ctx contextHandle
		p   pointer
	}{{own, p}, {primary, neighbour}} {
		if r := s.drv.fill(m.ctx, m.p, 1, 700); r != Success {
			t.Error(r)
		}
	}
	doubles.DestroyContext(t, uintptr(own))
}

// When an application destroys a context, CUDA frees its memory. Copies and flushes of the exported
// buffer fail then, and it can be closed. CUDA does not know the pointers any more.
func TestVMContextDestroyed(t *testing.T) {
	real := onGPU(t)
	if !real {
		udmabuf(t)
	}
	s := started(t)
	own := contextHandle(doubles.NewContext(t, 0))
	p, r := s.drv.alloc(own, huge)
	if r != Success {
		t.Fatal(r)
	}
	want := doubles.Random(huge)
	if r := s.drv.toDevice(own, p, want); r != Success {
		t.Fatal(r)
	}
	log := doubles.Calls{}
	if !real {
		log = doubles.Log(t)
	}
	e, err := s.exportMemory(p, huge, ExportOptions{}, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	doubles.DestroyContext(t, uintptr(own))
	if !real {
		// The descriptor keeps the pages, as the kernel's drivers do.
		doubles.Sees(t, e.Segments()[0].Buf, 0, want)
	}
	var failure *failure.Error
	for what, err := range map[string]error{
		"read":  second(e.ReadAt(make([]byte, 1), 0)),
		"write": second(e.WriteAt(make([]byte, 1), 0)),
		"flush": e.FlushWrites(),
	} {
		if !errors.Is(err, InvalidValue) || !errors.As(err, &failure) || failure.Remedy == "" {
			t.Errorf("%s: %v", what, err)
		}
		doubles.Words(t, err, "cuda:0", "the context was destroyed")
	}
	_, err = s.exportMemory(p, huge, ExportOptions{}, gpualloc.Env{})
	if !errors.Is(err, InvalidValue) {
		t.Errorf("a pointer of a context that is gone: %v", err)
	}
	doubles.Words(t, err, "CUDA does not know the address")
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if !real {
		log.Balanced(t, map[string]string{"cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease_v2"})
	}
}

func second(_ int, err error) error { return err }
