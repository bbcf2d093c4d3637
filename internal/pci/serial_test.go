// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestWithoutSerial(t *testing.T) {
	c := space(0x1d)
	le := binary.LittleEndian
	le.PutUint32(c[0x200:], 0x300<<20|1<<16|extCapIDACS)
	le.PutUint32(c[0x300:], 1<<16|extCapIDSerial)
	want := append([]byte(nil), c...)
	copy(c[0x304:], "\x01\x02\x03\x04\x05\x06\x07\x08")
	if got := WithoutSerial(c); !bytes.Equal(got, want) || c[0x304] != 1 {
		t.Error("the serial number is still there, or something else is not")
	}
	for _, n := range []int{0, 3, 64, 256, 260, 0x305} {
		if got := WithoutSerial(c[:n]); len(got) != n {
			t.Errorf("%d of %d bytes", len(got), n)
		}
	}
}
