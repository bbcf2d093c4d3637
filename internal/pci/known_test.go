// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// What this package reads of a configuration space is the same in what Known keeps of it, and nothing else is there.
func TestKnown(t *testing.T) {
	const serial, vendor = 0x03, 0x0b // PCI_EXT_CAP_ID_DSN, PCI_EXT_CAP_ID_VNDR
	c := space(0x1d)
	le := binary.LittleEndian
	le.PutUint32(c[0x200:], 0x300<<20|1<<16|extCapIDACS)
	le.PutUint32(c[0x300:], 0x320<<20|1<<16|serial)
	le.PutUint32(c[0x320:], 0x400<<20|1<<16|vendor)
	le.PutUint32(c[0x400:], 1<<16|extCapIDReBAR)
	le.PutUint32(c[0x404:], 0x3f0)
	le.PutUint32(c[0x408:], 0x21)
	want := bytes.Clone(c)
	copy(c[0x304:], "5ecre7")
	copy(c[0x324:], "5ecre7")
	copy(c[0x410:], "5ecre7")
	copy(c[0xf0:], "5ecre7")
	copy(c[0xf00:], "5ecre7")
	got := Known(c)
	if bytes.Contains(got, []byte("5ecre7")) || len(got) != len(c) {
		t.Error("registers that no check reads are there")
	}
	for at, b := range want {
		if got[at] != b && got[at] != 0 {
			t.Errorf("%#x: %#x, and it was %#x", at, got[at], b)
		}
	}
	x, y := Config{c, int64(len(c))}, Config{got, int64(len(got))}
	acs1, err1 := x.ACS()
	acs2, err2 := y.ACS()
	size1, err3 := x.LargestSize(1)
	size2, err4 := y.LargestSize(1)
	port1, err5 := x.Port()
	port2, err6 := y.Port()
	if acs1 != acs2 || err1 != err2 || size1 != size2 || size1 == 0 || err3 != err4 || port1 != port2 || err5 != err6 {
		t.Error(acs1, acs2, err1, err2, size1, size2, err3, err4, port1, port2, err5, err6)
	}
	for _, n := range []int{0, 3, 64, 65, 256, 260, 0x305} {
		if got := Known(c[:n]); len(got) != n {
			t.Errorf("%d of %d bytes", len(got), n)
		}
	}
}
