// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// farAway is an address where no process has memory.
const farAway = 0x7000_0000_0000_0000

func peer(t *testing.T, pd *PD, name, version string) {
	t.Helper()
	testenv.WriteFile(t, pd.ctx.sys.Path(peerDir, name, "version"), version+"\n")
}

func TestPeerClients(t *testing.T) {
	pd := scripted(t, newScript(), &kernel{reg: always(0)})
	root := pd.ctx.sys.Root()
	if list, err := PeerClients(root); err != nil || list != nil {
		t.Errorf("without any: %v, %v", list, err)
	}
	peer(t, pd, "nv_mem", "1.3")
	peer(t, pd, "amdkfd", "1.0")
	testenv.WriteFile(t, pd.ctx.sys.Path(peerDir, "half", "num_alloc_mrs"), "0")
	if list, err := PeerClients(root); err != nil || fmt.Sprint(list) != "[{amdkfd 1.0} {nv_mem 1.3}]" {
		t.Errorf("%v, %v", list, err)
	}
}

// A device pointer is registered if a client is there, and not otherwise.
func TestDevicePointer(t *testing.T) {
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	attr := MRAttr{Kind: DevicePointer, Pointer: farAway, Offset: 16, Length: 100, Access: AccessLocalWrite}
	refused := func(what string, attr MRAttr, cause fault.Cause, is error, words string) {
		t.Helper()
		mr, err := pd.RegMR(attr)
		var e *RegError
		if !errors.As(err, &e) || e.Cause != cause || !errors.Is(err, is) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, %v; want %v, %q", what, mr, err, cause, words)
		}
	}
	refused("no client", attr, fault.CauseNoPeerClient, errors.ErrUnsupported, "no peer-memory client is registered")
	testenv.WriteFile(t, pd.ctx.sys.Path("module/nvidia_peermem/version"), "580.1\n")
	refused("a module without", attr, fault.CauseNoPeerClient, errors.ErrUnsupported, "nvidia_peermem is loaded, but")
	unchecked := attr
	unchecked.SkipChecks = true
	refused("no client, no checks", unchecked, fault.CauseNoPeerClient, errors.ErrUnsupported, "")
	if s.addr != 0 {
		t.Fatal("ibv_reg_mr was called")
	}

	peer(t, pd, "nv_mem", "1.3")
	mr, err := pd.RegMR(attr)
	if err != nil {
		t.Fatal(err)
	}
	if mr.Route() != RoutePeerDirect || mr.IOVA() != farAway+16 || s.addr != farAway+16 {
		t.Errorf("%+v, registered at %#x", mr.State(), s.addr)
	}
	if err := mr.Rereg(ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessRemoteRead}}); err != nil || mr.Route() != RoutePeerDirect || s.reregs != 0 {
		t.Errorf("Rereg: %v, %+v, %d ibv_rereg_mr", err, mr.State(), s.reregs)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}

	with := func(f func(*MRAttr)) MRAttr { a := attr; f(&a); return a }
	mem, err := hostmem.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	refused("null", with(func(a *MRAttr) { a.Pointer = 0 }), fault.CauseBadRange, failure.ErrRange, "no device pointer")
	refused("length 0", with(func(a *MRAttr) { a.Length = 0 }), fault.CauseBadRange, failure.ErrRange, "length 0")
	refused("overflow", with(func(a *MRAttr) { a.Pointer = ^uint64(0) - 50 }), fault.CauseBadRange, failure.ErrRange, "overflows")
	refused("access", with(func(a *MRAttr) { a.Access = AccessRemoteWrite }), fault.CauseAccess, unix.EINVAL, "local-write")
	refused("memory of ours", with(func(a *MRAttr) { a.Pointer = mem.Addr(); a.Offset = 0 }), fault.CauseFault, unix.EFAULT, "register it as HostMemory")
	s.failWith("regHost", unix.EFAULT)
	refused("unknown to the client", attr, fault.CauseFault, unix.EFAULT, "no peer-memory client knows the pointer (registered: nv_mem)")
	s.failWith("regHost", unix.EINVAL)
	refused("the client's refusal", attr, fault.CauseUnknown, unix.EINVAL, "the peer-memory client refused")
}

// Peer-direct after a dma-buf was refused: only if asked for, and only where no
// dma-buf is registered at all.
func TestPeerDirectByPolicy(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy RoutePolicy
		kernel func(int32) unix.Errno
		client bool
		want   Route // "" is refused
	}{
		{"not asked for", RouteAuto, func(int32) unix.Errno { return unix.EOPNOTSUPP }, true, ""},
		{"asked for", RouteAutoPeerDirect, func(int32) unix.Errno { return unix.EOPNOTSUPP }, true, RoutePeerDirect},
		{"asked for, old kernel", RouteAutoPeerDirect, func(int32) unix.Errno { return unix.EPROTONOSUPPORT }, true, RoutePeerDirect},
		{"asked for, not needed", RouteAutoPeerDirect, always(0), true, RouteIoctl},
		{"asked for, no client", RouteAutoPeerDirect, func(int32) unix.Errno { return unix.EOPNOTSUPP }, false, ""},
		{"out of memory", RouteAutoPeerDirect, always(unix.ENOMEM), true, ""},
		{"a bad argument", RouteAutoPeerDirect, always(unix.EINVAL), true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pd := scripted(t, newScript(), &kernel{driver: 4, reg: c.kernel})
			if c.client {
				peer(t, pd, "nv_mem", "1.3")
			}
			mr, err := pd.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Pointer: farAway, Length: 100, Policy: c.policy, SkipChecks: true})
			if c.want == "" {
				var e *RegError
				if !errors.As(err, &e) || e.Route == RoutePeerDirect {
					t.Errorf("%v, %v", mr, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if mr.Route() != c.want || mr.IOVA() != 0 {
				t.Errorf("%+v", mr.State())
			}
			if err := mr.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMappedAt(t *testing.T) {
	const maps = `55d0c0000000-55d0c0010000 r--p 00000000 08:01 42 /usr/bin/program
7f0000000000-7f0040000000 ---p 00000000 00:00 0
7f0040000000-7f0040010000 rw-s 00000000 00:05 7 /dev/dri/renderD128
7f0040010000-7f0040020000 rw-s 00000000 00:05 8 /dev/nvidia-uvm
7f0050000000-7f0050010000 rw-p 00000000 00:00 0
7f0060000000-7f0060010000 rw-s 00000000 00:01 9 /dev/shm/x (deleted)
nonsense
zz-1 r--p 0 0 0
`
	for _, c := range []struct {
		addr, length uint64
		own          bool
	}{
		{0x55d0c0000000, 1, true},
		{0x7f0000000000, 0x1000, false}, // reserved, as CUDA does
		{0x7f0040000000, 0x20000, false},
		{0x7f0050000000, 1, true},
		{0x7f004fffffff, 1, false},
		{0x7f004fffffff, 2, true},
		{0x7f005000ffff, 1, true},
		{0x7f0050010000, 1, false},
		{0x7f0060000000, 1, true},
	} {
		if line := mappedAt(maps, c.addr, c.length); (line != "") != c.own {
			t.Errorf("%#x+%#x: %q", c.addr, c.length, line)
		}
	}
}
