// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Which MR an attachment belongs to is narrowed down by device and size.
func TestExistingMRs(t *testing.T) {
	mr := func(number uint32, length uint64) listedMR {
		return listedMR{rdmanl.MR{Owner: rdmanl.Owner{PID: 71}, Number: number, Length: length, LKey: number << 8, RKey: number<<8 | 1, KeysKnown: number != 3}, "mlx5_0"}
	}
	has := func(text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%q lacks %q", text, w)
			}
		}
	}
	list := MRs{"0000:05:00.0": {mr(1, 1<<20), mr(2, 2<<20), mr(3, 4096)}, "": {mr(4, 4096)}}
	at := func(pci string, size uint64) string { return list.Of(pci, size) }
	has(at("0000:05:00.0", 1<<20), "mlx5_0 MR 1 of 1 MiB by thread 71, lkey 0x100, rkey 0x101; mlx5_0 MR 3 of 4 KiB by thread 71")
	for _, none := range []string{at("0000:06:00.0", 1<<20), at("0000:05:00.0", 1), MRs(nil).Of("", 1<<30)} {
		if none != "" {
			t.Errorf("%q", none)
		}
	}
	for n := range uint32(20) {
		list[""] = append(list[""], mr(10+n, 4096))
	}
	has(at("", 4096), "MR 4", "; 13 more")
}

// A snapshot tells whether an attachment that is not in the second list has ended.
func TestSecondSight(t *testing.T) {
	attached := func(attach, inode uint64) *abi.Record {
		return &abi.Record{Have: abi.HaveAttach, Attach: attach, Inode: inode, DMABuf: inode << 8}
	}
	buffer := func(inode uint64, n uint32) *abi.Record { return &abi.Record{Inode: inode, NOthers: n} }
	list := []*abi.Record{
		attached(1, 10), attached(1, 10), buffer(10, 1), // through two descriptors
		attached(2, 20), buffer(20, 2), // not all of it
		buffer(30, 0),
		attached(5, 50), {Inode: 50, NOthers: 1, Have: abi.HaveWalkCut},
		attached(6, 60), buffer(60, 3), attached(7, 60), buffer(60, 2), // in two passes
	}
	for _, row := range []struct {
		name   string
		w      *abi.Record
		all    bool
		kernel map[uint64]bool
		there  bool
		gone   bool
	}{
		{name: "there", w: attached(1, 10), there: true},
		{name: "its address is another's", w: attached(1, 20), gone: true},
		{name: "its buffer has none", w: attached(3, 30), gone: true},
		{name: "its buffer has another", w: attached(3, 10), gone: true},
		{name: "its buffer was not listed whole", w: attached(3, 20)},
		{name: "its buffer's list broke off", w: attached(3, 50)},
		{name: "its buffer changed between two passes", w: attached(3, 60)},
		{name: "its buffer is nowhere", w: attached(3, 40), all: true, gone: true},
		{name: "no descriptor leads to its buffer", w: attached(3, 40), kernel: map[uint64]bool{40: true}},
		{name: "nor does the kernel know it", w: attached(3, 40), kernel: map[uint64]bool{10: true}, gone: true},
		{name: "nobody knows", w: attached(3, 40)},
	} {
		s := TakeSnapshot(list, row.all)
		s.Kernel = row.kernel
		if now, gone := s.Find(row.w); (now != nil) != row.there || gone != row.gone {
			t.Errorf("%s: %v, gone %v", row.name, now, gone)
		}
	}
}
