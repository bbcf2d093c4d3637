// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"encoding/binary"
	"errors"
	"testing"
)

func TestExpress(t *testing.T) {
	c := space(0)
	le := binary.LittleEndian
	le.PutUint16(c[0x54:], 2)
	le.PutUint16(c[0x58:], 0x5010|1<<5)
	le.PutUint16(c[0x78:], 0x40)
	got, ok, err := read(t, withConfig(t, c)).Express()
	want := Express{PayloadCap: 512, Payload: 256, ReadRequest: 128 << 5, RelaxedOrdering: true, AtomicRequests: true}
	if got != want || !ok || err != nil {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	c[regStatus] = 0
	if _, ok, err := read(t, withConfig(t, c)).Express(); ok || err != nil {
		t.Errorf("a conventional function: %v, %v", ok, err)
	}
	if _, _, err := read(t, withConfig(t, space(0)[:64])).Express(); !errors.Is(err, ErrTruncated) {
		t.Errorf("64 bytes: %v", err)
	}
}

// A capability has an entry for each BAR that has several sizes.
func TestResizableBARs(t *testing.T) {
	le := binary.LittleEndian
	data := space(0)
	le.PutUint32(data[0x200:], 1<<16|extCapIDReBAR)
	le.PutUint32(data[0x204:], 0x700<<4)       // up to 1 GiB
	le.PutUint32(data[0x208:], 2<<5|8<<8)      // BAR 0, two BARs in all
	le.PutUint32(data[0x20c:], 0x0006_0000<<4) // 128 and 256 GiB
	le.PutUint32(data[0x210:], 0xe0|2|0x11<<8) // BAR 2: how many there are only the first says
	le.PutUint32(data[0x214:], 0xffff_ffff)    // behind the last
	le.PutUint32(data[0x218:], 4)
	for bar, want := range map[int]uint64{0: 1 << 30, 2: 256 << 30, 4: 0, 1: 0} {
		if got, err := read(t, withConfig(t, data)).LargestSize(bar); got != want || err != nil {
			t.Errorf("BAR %d: %d, %v; want %d", bar, got, err, want)
		}
	}
	if got, err := read(t, withConfig(t, space(0))).LargestSize(0); got != 0 || err != nil {
		t.Errorf("without: %d, %v", got, err)
	}
	if got, err := read(t, withConfig(t, space(0)[:64])).LargestSize(0); got != 0 || !errors.Is(err, ErrTruncated) {
		t.Errorf("64 bytes: %d, %v", got, err)
	}
}

func TestATS(t *testing.T) {
	for _, c := range []struct {
		id               uint16
		ctrl             uint16
		present, enabled bool
	}{{extCapIDATS, atsEnable, true, true}, {extCapIDATS, 0x1f, true, false}, {extCapIDACS, atsEnable, false, false}} {
		data := space(0)
		binary.LittleEndian.PutUint32(data[0x200:], 1<<16|uint32(c.id))
		binary.LittleEndian.PutUint16(data[0x206:], c.ctrl)
		present, enabled, err := read(t, withConfig(t, data)).ATS()
		if present != c.present || enabled != c.enabled || err != nil {
			t.Errorf("%+v: %v, %v, %v", c, present, enabled, err)
		}
	}
	if _, _, err := read(t, withConfig(t, space(0)[:256])).ATS(); err != nil {
		t.Errorf("a function that has 256 bytes: %v", err)
	}
	if _, _, err := read(t, withConfig(t, space(0)[:64])).ATS(); !errors.Is(err, ErrTruncated) {
		t.Errorf("64 bytes: %v", err)
	}
}
