// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"testing"
	"unsafe"
)

// recordBytes is a record as the ring carries it.
func recordBytes(w *Record) []byte {
	all := unsafe.Slice((*byte)(unsafe.Pointer(w)), unsafe.Sizeof(*w))
	return append([]byte(nil), all[:w.sent()]...)
}

func TestDecode(t *testing.T) {
	w := &Record{
		Head: Head{Type: EventRecord, ID: 9, Time: 30}, Start: 10, Kind: KindRegDMABuf, Have: HaveArgs | HaveMap,
		Length: 0x10000, Nents: 1, NRanges: 1, NSteps: 2,
	}
	w.Ranges[0] = Range{Start: 1 << 34, Size: 0x10000}
	w.Steps[1] = Step{Func: FuncMap, Time: 20}
	check := func() {
		t.Helper()
		ev, err := Decode(recordBytes(w))
		if err != nil {
			t.Fatal(err)
		}
		if got := ev.(*Record); *got != *w {
			t.Errorf("decoded %+v", got)
		}
		for n := range recordBytes(w) {
			if _, err := Decode(recordBytes(w)[:n]); err == nil {
				t.Fatalf("a record cut to %d bytes was accepted", n)
			}
		}
	}
	check()
	w.NResources = 2
	w.Resources[0] = Resource{Phys: 1 << 40, DMA: 1 << 30, Size: 4096}
	w.Resources[1] = Resource{Phys: 2 << 40, DMA: 2 << 30, Size: 4096}
	check()
	w.Head.Type = EventTracking
	if _, err := Decode(recordBytes(w)); err == nil {
		t.Error("an event that is never sent was accepted")
	}
}

// callersBytes are callers as the ring carries them.
func callersBytes(c *Callers) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(c)), unsafe.Sizeof(*c))...)
}

func TestDecodeCallers(t *testing.T) {
	w := &Callers{Event: Event{Head: Head{Type: EventCallers, ID: 7}}}
	copy(w.Name[0][:], "inner")
	copy(w.Name[1][:], "outer [module]")
	data := callersBytes(w)
	ev, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if got := ev.(*Callers); got.Event.Head.ID != 7 || len(got.Names()) != 2 || got.Names()[1] != "outer [module]" {
		t.Errorf("%+v", got)
	}
	if _, err := Decode(data[:len(data)-1]); err == nil {
		t.Error("callers that were cut were accepted")
	}
}
