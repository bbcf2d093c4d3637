// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// Where the library has ibv_alloc_buf, the provider allocates, and the memory is registered by
// ibv_reg_buf_mr; the PD is in use until it is closed. Elsewhere AllocHost maps the memory itself.
func TestAllocHost(t *testing.T) {
	for _, allocates := range []bool{true, false} {
		s := newScript()
		s.allocates = allocates
		pd := scripted(t, s, &kernel{driver: driverMLX5, reg: always(0)})
		mem, err := pd.AllocHost(100)
		if err != nil {
			t.Fatal(err)
		}
		if b := mem.Bytes(); len(b) != 100 || !bytes.Equal(b, make([]byte, 100)) {
			t.Errorf("%d bytes: %x", len(b), b)
		}
		mr, err := pd.RegMR(MRAttr{Kind: HostMemory, Host: mem.Bytes(), Offset: 8, Length: 50, Owner: mem})
		if err != nil {
			t.Fatal(err)
		}
		want := RouteHost
		if allocates {
			want = RouteHostBuf
		}
		if mr.Route() != want || s.addr != mem.Addr()+8 || mr.IOVA() != s.addr {
			t.Errorf("by %s at %#x, IOVA %#x; want %s at %#x", mr.Route(), s.addr, mr.IOVA(), want, mem.Addr()+8)
		}
		// An IOVA of the caller's choice, or memory of others, is not ibv_reg_buf_mr's.
		other, err := pd.RegMR(MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 50, IOVA: 1 << 40, Owner: mem})
		if err != nil || other.Route() != RouteHost {
			t.Errorf("another IOVA: by %v, %v", other.Route(), err)
		}
		if err := mem.Close(); !errors.Is(err, failure.ErrInUse) {
			t.Errorf("closed under MRs: %v", err)
		}
		for _, x := range []interface{ Close() error }{mr, other} {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
		if allocates {
			if err := pd.Close(); !errors.Is(err, failure.ErrInUse) {
				t.Errorf("the PD was closed under its memory: %v", err)
			}
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
		if mem.Bytes() != nil || mem.Close() != nil {
			t.Error("closed, and there")
		}
	}
}

func TestAllocHostRefusals(t *testing.T) {
	s := newScript()
	s.allocates = true
	pd := scripted(t, s, &kernel{driver: driverMLX5, reg: always(0)})
	if _, err := pd.AllocHost(0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no bytes: %v", err)
	}
	s.failWith("allocBuf", unix.ENOMEM)
	if _, err := pd.AllocHost(1); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("no memory: %v", err)
	}
	s.failWith("allocBuf", nil)
	if err := pd.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pd.AllocHost(1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
