// SPDX-License-Identifier: Apache-2.0

package pciids

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const file = `# comment
0001  SafeNet (wrong ID)
10de  NVIDIA Corporation
	2330  GH100 [H100 SXM5 80GB]
		10de 16c1  A board, which has numbers of its own
	2330x  no device
15b3  Mellanox Technologies
	1021  MT2910 Family [ConnectX-7]

C 02  Network controller
	00  Ethernet controller
10de  not a vendor any more
	2331  not a device
`

func TestRead(t *testing.T) {
	want := Names{
		{0x10de, 0x2330}: "NVIDIA Corporation GH100 [H100 SXM5 80GB]",
		{0x15b3, 0x1021}: "Mellanox Technologies MT2910 Family [ConnectX-7]",
		{0x10de, 0x2331}: "NVIDIA Corporation 2331",
	}
	got, err := Read(strings.NewReader(file), []ID{{0x10de, 0x2330}, {0x15b3, 0x1021}, {0x10de, 0x2331}, {0x1af4, 1}})
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// A broken file gives no names or the right ones, and Read keeps no more of it.
func TestBrokenFiles(t *testing.T) {
	id := ID{0x10de, 0x2330}
	for name, c := range map[string]struct {
		text, want string
		fails      bool
	}{
		"empty":           {"", "", false},
		"no vendor":       {"\t2330  a device\n", "", false},
		"device first":    {"\t2330  a device\n10de  V\n", "V 2330", false},
		"markup":          {"10de  <script>\n\t2330  </script>\n", "<script> </script>", false},
		"control":         {"10de  V\x1b[2J\n\t2330  D\x00\n", `V\x1b[2J D\x00`, false},
		"not UTF-8":       {"10de  V\xff\n", `V\xff 2330`, false},
		"long name":       {"10de  V\n\t2330  " + strings.Repeat("x", maxName+1) + "\n", "V 2330", false},
		"long line":       {"10de  V\n\t2330  " + strings.Repeat("x", 1<<20) + "\n", "", true},
		"one blank":       {"10de V\n\t2330  D\n", "", false},
		"binary":          {strings.Repeat("\x00\xff\n", 1000), "", false},
		"no end":          {"10de  V\n" + strings.Repeat("#\n", MaxBytes/2), "", true},
		"twice":           {"10de  V\n\t2330  D\n10de  W\n\t2330  E\n", "W E", false},
		"capital letters": {"10DE  V\n\t2330  D\n", "V D", false},
	} {
		names, err := Read(strings.NewReader(c.text), []ID{id})
		if names[id] != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v", name, names[id], err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	id := ID{0x10de, 0x2330}
	there, fifo := filepath.Join(dir, "pci.ids"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(there, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		paths []string
		named bool
		fails bool
	}{
		{[]string{dir + "/none", there}, true, false}, {[]string{dir + "/none"}, false, false}, {nil, false, false},
		{[]string{fifo, there}, false, true}, {[]string{dir, there}, false, true},
	} {
		names, err := Load(c.paths, []ID{id})
		if (names[id] != "") != c.named || (err != nil) != c.fails {
			t.Errorf("%v: %v, %v", c.paths, names, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		vendor, device string
		ok             bool
	}{{"10de", "2330", true}, {"", "2330", false}, {"10de", "x", false}, {"110de", "1", false}} {
		if id, ok := Parse(c.vendor, c.device); ok != c.ok || ok && id != (ID{0x10de, 0x2330}) {
			t.Errorf("%q %q: %v %v", c.vendor, c.device, id, ok)
		}
	}
}
