// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"testing"
	"unsafe"
)

// recordBytes is a record as the ring carries it.
func recordBytes(w *wireRecord) []byte {
	all := unsafe.Slice((*byte)(unsafe.Pointer(w)), unsafe.Sizeof(*w))
	return append([]byte(nil), all[:w.sent()]...)
}

func TestDecode(t *testing.T) {
	var c clock
	w := made(&c, 9)
	check := func() {
		t.Helper()
		ev, err := decode(recordBytes(w))
		if err != nil {
			t.Fatal(err)
		}
		if got := ev.(*wireRecord); *got != *w {
			t.Errorf("decoded %+v", got)
		}
		for n := range recordBytes(w) {
			if _, err := decode(recordBytes(w)[:n]); err == nil {
				t.Fatalf("a record cut to %d bytes was accepted", n)
			}
		}
	}
	check()
	w.NResources = 2
	w.Resources[0] = wireResource{Phys: 1 << 40, DMA: 1 << 30, Size: 4096}
	w.Resources[1] = wireResource{Phys: 2 << 40, DMA: 2 << 30, Size: 4096}
	check()
	w.Head.Type = eventTracking
	if _, err := decode(recordBytes(w)); err == nil {
		t.Error("an event that is never sent was accepted")
	}
}

// callersBytes are callers as the ring carries them.
func callersBytes(c *wireCallers) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(c)), unsafe.Sizeof(*c))...)
}
