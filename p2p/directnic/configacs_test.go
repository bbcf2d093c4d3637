// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

const configACS = "drivers/pci/pci.c, __pci_config_acs"

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		letters, source string
		mask, value     pci.ACSBits
		written, err    string
	}{
		{"xx110x1", rdmaTopo, 0x1d, 0x19, "xx110x1", ""},
		{"1x111x1", rdmaTopo, 0x5d, 0x5d, "1x111x1", ""},
		{"xx000x0", rdmaTopo, 0x1d, 0, "xx000x0", ""},
		{"10x", "Documentation/admin-guide/kernel-parameters.txt, config_acs", 0x06, 0x04, "xxxx10x", ""},
		{"1111011", "commit 9cf8a952d57b", 0x7f, 0x7b, "1111011", ""},
		{"101xxxx", "commit 9cf8a952d57b", 0x70, 0x50, "101xxxx", ""},
		{"XX1", configACS, 1, 1, "xxxxxx1", ""},
		{"", configACS, 0, 0, "xxxxxxx", ""},
		{"xxxxxxxx1", configACS, 1, 1, "xxxxxx1", ""},
		{"10000000", configACS + ": Invalid ACS flags specified", 0, 0, "", "there are 7 bits"},
		{"xx21", configACS + ": Invalid ACS flags", 0, 0, "", "'2' is none of"},
		{`"xx1`, configACS + ": Invalid ACS flags", 0, 0, "", "none of"},
	} {
		f, err := ParseFlags(test.letters)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q (%s): error %v", test.letters, test.source, err)
		}
		if err == nil {
			same(t, test.letters+": mask", f.Mask, test.mask)
			same(t, test.letters+": value", f.Value, test.value)
			same(t, test.letters+": written", f.String(), test.written)
		}
	}
}

// The kernel logged these values (commit 9cf8a952d57b).
func TestApply(t *testing.T) {
	for _, test := range []struct {
		letters        string
		firmware, want pci.ACSBits
	}{ // commit 9cf8a952d57b, "After this fix"
		{"1111011", 0x53, 0x7b},
		{"101xxxx", 0x00, 0x50},
	} {
		f := must(test.letters)
		same(t, test.letters, f.Apply(test.firmware), test.want)
		same(t, test.letters+" holds", f.Holds(f.Apply(test.firmware)), true)
		same(t, test.letters+" does not hold", f.Holds(f.Apply(test.firmware)^f.Mask&-f.Mask), false)
	}
}

func TestParseConfigACS(t *testing.T) {
	for _, test := range []struct {
		name, source, value string
		read                string // the entries that count
		err                 string
	}{
		{"case 07", "NVIDIA/nodewright-packages#111", "xx110x1@0008:02:00.0;xx101x1@0008:02:03.0;xx111x0@0008:00:00.0", "xx110x1@0008:02:00.0;xx101x1@0008:02:03.0;xx111x0@0008:00:00.0", ""},
		{"nothing", configACS, "", "", ""},
		{"a path and IDs", "drivers/pci/pci.c, pci_dev_str_match", "x1@0008:00:00.0/00.0/03.0;10x@pci:0:0;x@pci:15b3:197c:15b3:61", "xxxxxx1@0008:00:00.0/00.0/03.0;xxxx10x@pci:0:0;xxxxxxx@pci:15b3:197c:15b3:61", ""},
		{"no device", configACS + ": ACS Flags missing", "xx1@02:00.0;10x", "xxxxxx1@02:00.0", `"10x" has no "@"`},
		{"a bad letter", configACS, "xx1@02:00.0;xy1@02:01.0;xx1@02:02.0", "xxxxxx1@02:00.0", "xy1"},
		{"a bad device", "drivers/pci/pci.c, pci_dev_str_match_path", "xx1@02:00.0;xx1@02.0;xx1@02:02.0", "xxxxxx1@02:00.0", "02.0"},
		{"a bad domain", "drivers/pci/pci.c, pci_dev_str_match_path", "xx1@zz:02:00.0", "", "zz:02:00.0"},
		{"a bad bus", "drivers/pci/pci.c, pci_dev_str_match_path", "xx1@zz:00.0", "", "zz:00.0"},
		{"too many numbers", "drivers/pci/pci.c, pci_dev_str_match_path", "xx1@0:0:02:00.0", "", "0:0:02:00.0"},
		{"a bad step", "drivers/pci/pci.c, pci_dev_str_match_path", "xx1@02:00.0/3", "", "02:00.0/3"},
		{"an end in a slash", "drivers/pci/pci.c, pci_dev_str_match_path", "xx1@02:00.0/", "", "02:00.0/"},
		{"bad IDs", "drivers/pci/pci.c, pci_dev_str_match", "xx1@pci:15b3", "", "pci:15b3"},
		{"quotes", "lib/cmdline.c, next_arg", `"xx1@02:00.0"`, "", "boot loader"},
	} {
		t.Run(test.name, func(t *testing.T) {
			entries, err := ParseConfigACS(test.value)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			same(t, "read", FormatConfigACS(entries), test.read)
		})
	}
}

// setting returns the flags that config_acs= has for a port. The kernel takes the first
// entry that names the port (drivers/pci/pci.c, __pci_config_acs). The answer is
// Unknown if it is not known whether an entry names the port, and no earlier entry
// names it.
func setting(entries []Entry, port Function) (Flags, Tri) {
	for _, e := range entries {
		switch is, err := e.names(port); {
		case err != nil:
			return Flags{}, No
		case is == Yes:
			return e.Flags, Yes
		case is == Unknown:
			return Flags{}, Unknown
		}
	}
	return Flags{}, No
}

func TestSetting(t *testing.T) {
	switchPort := Function{Addr: addr("0008:02:03.0"), Vendor: mellanox, Device: 0x197c, Upstream: []pciaddr.Addr{addr("0008:01:00.0"), addr("0008:00:00.0")}}
	const match = "drivers/pci/pci.c, pci_dev_str_match"
	for _, test := range []struct {
		name, source, value, want string
		set                       Tri
	}{
		{"its address", match, "xx1@0008:02:03.0", "xxxxxx1", Yes},
		{"the first of two", configACS, "xx110x1@0008:02:03.0;xx000x0@0008:02:03.0", "xx110x1", Yes},
		{"another's and its own", configACS, "xx000x0@0008:02:00.0;xx110x1@0008:02:03.0", "xx110x1", Yes},
		{"all devices before its own", match, "xx000x0@pci:0:0;xx110x1@0008:02:03.0", "xx000x0", Yes},
		{"its IDs", match, "xx1@pci:15b3:197c", "xxxxxx1", Yes},
		{"any device of its vendor", match, "xx1@pci:15b3:0", "xxxxxx1", Yes},
		{"other IDs", match, "xx1@pci:15b3:1979", "xxxxxxx", No},
		{"IDs of a board", match, "xx1@pci:15b3:197c:15b3:0061;xx0@0008:02:03.0", "xxxxxxx", Unknown},
		{"its path", match, "xx1@0008:00:00.0/00.0/03.0", "xxxxxx1", Yes},
		{"another path", match, "xx1@0008:00:00.0/00.0/00.0", "xxxxxxx", No},
		{"a path that is too long", match, "xx1@0008:00:00.0/00.0/00.0/00.0/03.0", "xxxxxxx", No},
		{"no domain", match + ": it is 0 then", "xx1@02:03.0", "xxxxxxx", No},
		{"digits that are missing", match + " uses sscanf", "xx1@8:2:3.0", "xxxxxx1", Yes},
		{"capital letters", match + " uses sscanf", "XX1@0008:02:03.0", "xxxxxx1", Yes},
		{"another's", match, "xx1@0008:02:00.0", "xxxxxxx", No},
		{"nothing", configACS, "", "xxxxxxx", No},
	} {
		t.Run(test.name, func(t *testing.T) {
			entries, err := ParseConfigACS(test.value)
			if err != nil {
				t.Fatal(err)
			}
			flags, set := setting(entries, switchPort)
			same(t, "set", set, test.set)
			same(t, "flags", flags.String(), test.want)
		})
	}
}

// The kernel stops at a device that it cannot read.
func TestSettingBehindABadDevice(t *testing.T) {
	one := Function{Addr: addr("0000:02:00.0")} // __pci_config_acs: Can't parse ACS command line parameter
	_, set := setting([]Entry{{isolated, "02.0"}, {isolated, "0000:02:00.0"}}, one)
	same(t, "set", set, No)
}

func TestReadsLists(t *testing.T) {
	for _, test := range []struct {
		release, source string
		want            Tri
	}{
		{"6.15.0", "commit 9cf8a952d57b is in v6.15", Yes}, {"7.1.0-rc3", "v6.15", Yes}, {"6.17.0-1010-nvidia-64k", "v6.15", Yes},
		{"6.14.2", "6.14.2 review, patch 294", Yes}, {"6.14.0-1012-nvidia-64k", "6.14.2 review, patch 294", Unknown},
		{"6.13.11", "6.13.11 review, patch 80", Yes}, {"6.13.10", "6.13.11 review, patch 80", Unknown},
		{"6.12.23", "6.12.23 review, patch 64", Yes}, {"6.12.57+deb13-amd64", "6.12.23 review, patch 64", Yes}, {"6.12.22", "6.12.23 review, patch 64", Unknown},
		{"6.8.0-1013-nvidia", "NVIDIA/NV-Kernels#20", Unknown}, {"6.1.0-35-amd64", "the parameter is in v6.11", Unknown},
		{"", "unread", Unknown}, {"next", "no number", Unknown},
	} {
		same(t, test.release+" ("+test.source+")", ReadsLists(test.release), test.want)
	}
}

func TestTri(t *testing.T) {
	for _, test := range []struct {
		of   []Tri
		want Tri
	}{{nil, Unknown}, {[]Tri{Yes}, Yes}, {[]Tri{Yes, Unknown}, Unknown}, {[]Tri{Unknown, No}, No}, {[]Tri{Yes, No, Unknown}, No}} {
		same(t, "all", all(test.of...), test.want)
	}
	same(t, "words", Yes.String()+No.String()+Unknown.String(), "yesnounknown")
	same(t, "shape", DataDirect.String()+Shape(9).String(), "Data Directinvalid (9)")
	same(t, "role", DMAPort.String()+Role(9).String(), "port toward the DMA functioninvalid (9)")
}
