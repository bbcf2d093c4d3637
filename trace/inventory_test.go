// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/rdmanl"
)

// What only debugfs shows has identities of its own, and is found now.
func TestInventoryOfDebugfs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dma_buf")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const text = "\nDma-buf Objects:\nsize    \tflags   \tmode    \tcount   \texp_name\tino     \tname\n" +
		"00004096\t00080002\t00080007\t00000003\tdrm\t00000007\t<none>\n" +
		"\tAttached Devices:\n\t0000:05:00.0\n\t0000:06:00.0\nTotal 2 devices attached\n\n" +
		"00008192\t00080002\t00080007\t00000002\tudmabuf\t00000008\t<none>\n" +
		"\tAttached Devices:\n\trxe0\nTotal 1 devices attached\n\n"
	if err := os.WriteFile(filepath.Join(dir, "bufinfo"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := &Tracer{cfg: Config{Debug: filepath.Dir(dir)}, join: testJoiner(10)}
	tr.join.conv.boot = time.Now().Add(-time.Hour)
	tr.kernelBufs(map[uint64]bool{}, func(uint64) bool { return true }, nil, 3, true)
	ids := map[uint64]bool{existedBit | 1: true, existedBit | 2: true, existedBit | 3: true}
	events := tr.join.take()
	for _, e := range events {
		if r := &e.Record; ids[r.ID] || !r.Existed || r.Importer.Device == "" || time.Since(e.Time) > time.Minute {
			t.Errorf("%+v", e)
		}
		ids[e.Record.ID] = true
	}
	if len(events) != 3 {
		t.Errorf("%d attachments", len(events))
	}
	// Of a list that was cut it is not known what it lacks.
	for whole, want := range map[bool]string{true: "no descriptor leads to it", false: "could not be read to its end"} {
		tr.kernelBufs(map[uint64]bool{}, func(uint64) bool { return true }, nil, 6, whole)
		for _, e := range tr.join.take() {
			mustHave(t, strings.Join(e.Record.Incomplete, "; "), want)
		}
	}
}

// Which MR an attachment belongs to is narrowed down by device and size.
func TestExistingMRs(t *testing.T) {
	mr := func(number uint32, length uint64) listedMR {
		return listedMR{rdmanl.MR{Owner: rdmanl.Owner{PID: 71}, Number: number, Length: length, LKey: number << 8, RKey: number<<8 | 1, KeysKnown: number != 3}, "mlx5_0"}
	}
	list := existingMRs{"0000:05:00.0": {mr(1, 1<<20), mr(2, 2<<20), mr(3, 4096)}, "": {mr(4, 4096)}}
	at := func(pci string, size uint64) string { return list.of(&Importer{PCI: pci}, &Buffer{Size: size}) }
	mustHave(t, at("0000:05:00.0", 1<<20), "mlx5_0 MR 1 of 1 MiB by thread 71, lkey 0x100, rkey 0x101; mlx5_0 MR 3 of 4 KiB by thread 71")
	for _, none := range []string{at("0000:06:00.0", 1<<20), at("0000:05:00.0", 1), list.of(nil, &Buffer{}), list.of(&Importer{}, nil), existingMRs(nil).of(&Importer{}, &Buffer{Size: 1 << 30})} {
		if none != "" {
			t.Errorf("%q", none)
		}
	}
	for n := range uint32(20) {
		list[""] = append(list[""], mr(10+n, 4096))
	}
	mustHave(t, at("", 4096), "MR 4", "; 13 more")
}

// Of what a second list lacks it is known whether it is gone.
func TestSecondSight(t *testing.T) {
	attached := func(attach, inode uint64) *wireRecord {
		return &wireRecord{Have: haveAttach, Attach: attach, Inode: inode, DMABuf: inode << 8}
	}
	buffer := func(inode uint64, n uint32) *wireRecord { return &wireRecord{Inode: inode, NOthers: n} }
	list := []*wireRecord{
		attached(1, 10), attached(1, 10), buffer(10, 1), // through two descriptors
		attached(2, 20), buffer(20, 2), // not all of it
		buffer(30, 0),
		attached(5, 50), {Inode: 50, NOthers: 1, Have: haveWalkCut},
		attached(6, 60), buffer(60, 3), attached(7, 60), buffer(60, 2), // in two passes
	}
	for _, row := range []struct {
		name   string
		w      *wireRecord
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
		s := takeSight(list, row.all)
		s.kernel = row.kernel
		if now, gone := s.find(row.w); (now != nil) != row.there || gone != row.gone {
			t.Errorf("%s: %v, gone %v", row.name, now, gone)
		}
	}
}
