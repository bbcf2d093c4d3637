// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// kernel answers requests and keeps their bytes.
type kernel struct {
	mu     sync.Mutex
	driver uint32
	seen   [][]byte
	answer func(object, method uint16, raw []byte) unix.Errno
	always unix.Errno // to everything, the driver's number included
}

func (k *kernel) Ioctl(_ int, req uint32, arg unsafe.Pointer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if req != VerbsIoctl {
		return unix.ENOTTY
	}
	raw := unsafe.Slice((*byte)(arg), binary.NativeEndian.Uint16(unsafe.Slice((*byte)(arg), 2)))
	object, method := binary.NativeEndian.Uint16(raw[2:]), binary.NativeEndian.Uint16(raw[4:])
	switch {
	case k.always != 0:
		return k.always
	case binary.NativeEndian.Uint32(raw[16:]) != k.driver:
		return unix.EINVAL
	case object == objectNone:
		return unix.EPROTONOSUPPORT
	}
	k.seen = append(k.seen, append([]byte(nil), raw...))
	if k.answer != nil {
		if n := k.answer(object, method, raw); n != 0 {
			return n
		}
	}
	return nil
}

// The request numbers and bytes of a little-endian machine, written by hand
// from the headers.
func TestGoldenBytes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the golden bytes are little endian")
	}
	if VerbsIoctl != 0xc0181b01 {
		t.Errorf("RDMA_VERBS_IOCTL = %#x, want 0xc0181b01", VerbsIoctl)
	}
	k := &kernel{driver: 0x0e}
	f := Wrap(k, 9)
	if _, err := f.RegDMABufMR(DMABufMR{PD: 0x11, FD: 7, Access: 0x100007, Offset: 0x1234, Length: 0x5678, IOVA: 0x7f0000001234}); err != nil {
		t.Fatal(err)
	}
	if err := f.DestroyMR(0x42); err != nil {
		t.Fatal(err)
	}
	if err := f.DeallocPD(0x11); err != nil {
		t.Fatal(err)
	}
	pd, access := uint32(0x12), uint32(0x100003)
	for _, p := range []Rereg{{PD: &pd}, {Access: &access}, {PD: &pd, Access: &access}} {
		if _, err := f.ReregMR(0x42, p); err != nil {
			t.Fatal(err)
		}
	}
	header := func(length, object, method, n string) string {
		return length + object + method + n + "0000000000000000" + "0e000000" + "00000000"
	}
	rereg := header("4800", "0000", "0000", "0300") +
		"0000" + "3000" + "0100" + "0000" + "????????????????" + // CORE_IN: an address
		"0100" + "0800" + "0100" + "0000" + "????????????????" + // CORE_OUT
		"0200" + "0800" + "0100" + "0000" + "0b00000000000000" // WRITE_CMD
	for i, want := range []string{
		header("a800", "0700", "0400", "0900") +
			"0000" + "0000" + "0100" + "0000" + "0000000000000000" + // HANDLE: the kernel fills it
			"0100" + "0000" + "0100" + "0000" + "1100000000000000" + // PD_HANDLE
			"0200" + "0800" + "0100" + "0000" + "3412000000000000" + // OFFSET
			"0300" + "0800" + "0100" + "0000" + "7856000000000000" + // LENGTH
			"0400" + "0800" + "0100" + "0000" + "34120000007f0000" + // IOVA
			"0500" + "0400" + "0100" + "0000" + "0700000000000000" + // FD
			"0600" + "0400" + "0100" + "0000" + "0700100000000000" + // ACCESS_FLAGS
			"0700" + "0400" + "0100" + "0000" + "????????????????" + // RESP_LKEY: an address
			"0800" + "0400" + "0100" + "0000" + "????????????????", // RESP_RKEY
		header("2800", "0700", "0100", "0100") +
			"0000" + "0000" + "0100" + "0000" + "4200000000000000", // DESTROY_MR_HANDLE
		header("3800", "0000", "0000", "0200") +
			"0000" + "0400" + "0100" + "0000" + "1100000000000000" + // CORE_IN
			"0200" + "0800" + "0100" + "0000" + "0400000000000000", // WRITE_CMD
		rereg, rereg, rereg,
	} {
		got := hex.EncodeToString(k.seen[i])
		if len(got) != len(want) {
			t.Errorf("request %d has %d bytes, want %d", i, len(got)/2, len(want)/2)
			continue
		}
		for j := range want {
			if want[j] != '?' && want[j] != got[j] {
				t.Errorf("request %d differs at byte %d:\n got %s\nwant %s", i, j/2, got, want)
				break
			}
		}
	}
}

// What REREG_MR's block holds: PD and access as asked for, and never the flag
// for the memory.
func TestReregBlock(t *testing.T) {
	var got reregMR
	k := &kernel{driver: 14}
	k.answer = func(_, _ uint16, raw []byte) unix.Errno {
		data := func(i int) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&raw[24+16*i+8])) }
		got = *(*reregMR)(data(0))
		*(*reregMRResp)(data(1)) = reregMRResp{lkey: 0x1111, rkey: 0x2222}
		return 0
	}
	f := Wrap(k, 9)
	pd, access := uint32(7), uint32(0x100001)
	for _, c := range []struct {
		ask  Rereg
		want reregMR
	}{
		{Rereg{PD: &pd}, reregMR{mrHandle: 42, flags: 2, pdHandle: 7}},
		{Rereg{Access: &access}, reregMR{mrHandle: 42, flags: 4, accessFlags: 0x100001}},
		{Rereg{PD: &pd, Access: &access}, reregMR{mrHandle: 42, flags: 6, pdHandle: 7, accessFlags: 0x100001}},
	} {
		mr, err := f.ReregMR(42, c.ask)
		if err != nil || mr != (MR{42, 0x1111, 0x2222}) {
			t.Errorf("ReregMR = %+v, %v", mr, err)
		}
		if got != c.want {
			t.Errorf("sent %+v, want %+v", got, c.want)
		}
	}
	k.answer = func(uint16, uint16, []byte) unix.Errno { return unix.EACCES }
	if _, err := f.ReregMR(42, Rereg{PD: &pd}); err != unix.EACCES {
		t.Errorf("ReregMR: %v, want bare EACCES", err)
	}
}

// Results come back through pointers and handles, and every method passes the
// kernel's errno on.
func TestResults(t *testing.T) {
	k := &kernel{driver: 3}
	k.answer = func(object, method uint16, raw []byte) unix.Errno {
		data := func(i int) []byte { return raw[24+16*i+8:][:8] }
		put32 := func(i int, v uint32) {
			*(*uint32)(*(*unsafe.Pointer)(unsafe.Pointer(&data(i)[0]))) = v
		}
		put64 := func(i int, v uint64) {
			*(*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&data(i)[0]))) = v
		}
		switch {
		case object == objectMR && method == methodRegDMABufMR:
			binary.NativeEndian.PutUint64(data(0), 77)
			put32(7, 0xaabb)
			put32(8, 0xccdd)
		case object == objectMR && method == methodQueryMR:
			put32(1, 1)
			put32(2, 2)
			put64(3, 1<<40)
			put64(4, 1<<50)
		case object == objectDevice && method == methodInvokeWrite:
			if binary.NativeEndian.Uint64(data(2)) == cmdAllocPD {
				put32(1, 99)
			}
		}
		return 0
	}
	f := Wrap(k, 9)
	if mr, err := f.RegDMABufMR(DMABufMR{}); err != nil || mr != (MR{77, 0xaabb, 0xccdd}) {
		t.Errorf("RegDMABufMR = %+v, %v", mr, err)
	}
	if info, err := f.QueryMR(77); err != nil || info != (MRInfo{1, 2, 1 << 40, 1 << 50}) {
		t.Errorf("QueryMR = %+v, %v", info, err)
	}
	if pd, err := f.AllocPD(); err != nil || pd != 99 {
		t.Errorf("AllocPD = %d, %v", pd, err)
	}
	if id, err := f.Identify(); err != nil || id != 3 {
		t.Errorf("Identify = %d, %v", id, err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("closing a borrowed descriptor: %v", err)
	}
	for _, n := range []unix.Errno{unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, 524, unix.EIO} {
		k.answer = func(uint16, uint16, []byte) unix.Errno { return n }
		_, e1 := f.RegDMABufMR(DMABufMR{})
		_, e2 := f.QueryMR(1)
		_, e3 := f.AllocPD()
		for i, err := range []error{e1, e2, e3, f.DestroyMR(1), f.DeallocPD(1), f.ProbeDMABuf(1)} {
			if err != n {
				t.Errorf("call %d: %v, want bare %v", i, err, n)
			}
		}
	}
}

// The number of the driver is found by asking, and not at all on a descriptor
// that is no uverbs device or whose device is gone.
func TestIdentify(t *testing.T) {
	for _, id := range []uint32{0, 1, 14, driverIDs - 1} {
		f := Wrap(&kernel{driver: id}, 9)
		for range 2 {
			if got, err := f.Identify(); got != id || err != nil {
				t.Errorf("Identify() = %d, %v; want %d", got, err, id)
			}
		}
	}
	for _, k := range []*kernel{{driver: driverIDs}, {always: unix.ENOTTY}, {always: unix.EIO}, {always: unix.EINVAL}} {
		f := Wrap(k, 9)
		_, err := f.Identify()
		want := k.always
		if want == 0 {
			want = unix.EINVAL
		}
		if !errors.Is(err, want) {
			t.Errorf("Identify: %v, want %v", err, want)
		}
		if _, err := f.AllocPD(); !errors.Is(err, want) {
			t.Errorf("AllocPD without a driver's number: %v, want %v", err, want)
		}
	}
}

// A driver that took descriptor -1 gets the MR destroyed.
func TestProbeThatSucceeds(t *testing.T) {
	k := &kernel{}
	if err := Wrap(k, 9).ProbeDMABuf(1); err != nil {
		t.Error(err)
	}
	if len(k.seen) != 2 || binary.NativeEndian.Uint16(k.seen[1][4:]) != methodMRDestroy {
		t.Errorf("%d requests, want a registration and a destruction", len(k.seen))
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open(Kernel(), "/dev/infiniband/no-such"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing node: %v", err)
	}
	// A node that is no uverbs device.
	if _, err := Open(Kernel(), os.DevNull); !errors.Is(err, unix.ENOTTY) || !strings.Contains(err.Error(), os.DevNull) {
		t.Errorf("/dev/null: %v, want ENOTTY with the path", err)
	}
	if err := Access(os.DevNull); err != nil {
		t.Errorf("Access(/dev/null): %v", err)
	}
	if err := Access("/no-such"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Access(/no-such): %v", err)
	}
}

func TestNoAllocations(t *testing.T) {
	f := Wrap(&kernel{}, 9)
	k := f.t.(*kernel)
	a := testing.AllocsPerRun(100, func() {
		k.seen = k.seen[:0]
		if _, err := f.RegDMABufMR(DMABufMR{}); err != nil {
			t.Fatal(err)
		}
	})
	if a > 6 { // the script's copy of the bytes is part of it
		t.Errorf("a registration allocates %v times", a)
	}
}
