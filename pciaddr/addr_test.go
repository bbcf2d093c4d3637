// SPDX-License-Identifier: Apache-2.0

package pciaddr

import (
	"encoding/json"
	"testing"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]Addr{
		"0000:03:00.0":  {0, 3, 0, 0},
		"03:1f.7":       {0, 3, 0x1f, 7},
		"00ff:80:0a.1":  {0xff, 0x80, 0xa, 1},
		"10000:e1:00.0": {0x10000, 0xe1, 0, 0}, // behind VMD
	} {
		got, err := Parse(s)
		if got != want || err != nil {
			t.Errorf("ParseAddr(%q) = %+v, %v", s, got, err)
		}
		if again, err := Parse(got.String()); again != got || err != nil {
			t.Errorf("%q does not survive String: %v, %v", s, again, err)
		}
	}
	for _, s := range []string{
		"", "0", "0000:03:00", "0000:03:20.0", "0000:03:00.8", "0000:3:00.0", "03:00.00", "000:03:00.0",
		"0000:03:00.0 ", "zz:00.0", "0:0:0:0", "pci0000:00", "0000:00:-1.0", "+0000:00:00.0", "1000000000:00:00.0",
	} {
		if got, err := Parse(s); err == nil {
			t.Errorf("ParseAddr(%q) = %v", s, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0000:03:00.0")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(a.String()); err != nil || again != a {
			t.Errorf("%q: %v, then %v, %v", s, a, again, err)
		}
	})
}

func TestAddrInJSON(t *testing.T) {
	type box struct{ PCI *Addr }
	text, err := json.Marshal(box{&Addr{Bus: 3}})
	if string(text) != `{"PCI":"0000:03:00.0"}` || err != nil {
		t.Error(string(text), err)
	}
	var b box
	if err := json.Unmarshal(text, &b); err != nil || *b.PCI != (Addr{Bus: 3}) {
		t.Error(b.PCI, err)
	}
	if err := json.Unmarshal([]byte(`{"PCI":"here"}`), &b); err == nil {
		t.Error("\"here\" is an address")
	}
}
