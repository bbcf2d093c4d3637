// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const fdinfoVGEM = "pos:\t0\nflags:\t02000002\nmnt_id:\t12\nino:\t4048\nsize:\t65536\ncount:\t3\nexp_name:\tdrm\n"

func TestParseFDInfo(t *testing.T) {
	vgem := Info{Size: 65536, Inode: 4048, Exporter: "drm", Count: 3, Flags: unix.O_RDWR | unix.O_CLOEXEC}
	named := vgem
	named.Name = "weights"
	odd := vgem
	odd.Name = "a:\tb\nsize:\t1\nname:\tx"
	for name, c := range map[string]struct {
		text string
		want Info
		ok   bool
	}{
		"plain":              {fdinfoVGEM, vgem, true},
		"named":              {fdinfoVGEM + "name:\tweights\n", named, true},
		"name with lines":    {fdinfoVGEM + "name:\t" + odd.Name + "\n", odd, true},
		"no last line break": {strings.TrimSuffix(fdinfoVGEM, "\n"), vgem, true},
		"before 5.14":        {strings.Replace(fdinfoVGEM, "ino:\t4048\n", "", 1), Info{Size: 65536, Exporter: "drm", Count: 3, Flags: vgem.Flags}, true},
		"a file":             {"pos:\t0\nflags:\t02\nmnt_id:\t12\nino:\t4048\n", Info{}, false},
		"empty":              {"", Info{}, false},
		"bad size":           {strings.Replace(fdinfoVGEM, "65536", "64k", 1), Info{}, false},
		"size only":          {"size:\t1\n", Info{}, false},
	} {
		got, ok := parseFDInfo(c.text)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
	if (Info{Flags: unix.O_RDONLY}).Writable() || !(Info{Flags: unix.O_RDWR}).Writable() {
		t.Error("Writable does not follow the flags")
	}
}

func FuzzParseFDInfo(f *testing.F) {
	f.Add(fdinfoVGEM)
	f.Add(fdinfoVGEM + "name:\tx\ny\n")
	f.Fuzz(func(t *testing.T, text string) {
		info, ok := parseFDInfo(text)
		if ok && !strings.Contains(text, info.Exporter) {
			t.Errorf("exporter %q is not in the text", info.Exporter)
		}
	})
}

const mapsText = `00400000-00586000 r-xp 00000000 00:1c 19977033                           /tmp/a.test
7efdb4409000-7efdb4419000 r--s 100000000 00:0b 4048                      /dmabuf:
7efdb4500000-7efdb4501000 rw-s 00001000 00:0b 4049                       /dmabuf:two words\012and a line
7efdb4600000-7efdb4601000 rw-p 00000000 00:00 0
7efdb4700000-7efdb4701000 rw-s 00000000 08:01 12                         /dmabuf:a file of that name
7efdb4800000 rw-s 00000000 00:0b 1                                       /dmabuf:broken
x-y rw-s 00000000 00:0b 1                                                /dmabuf:broken
`

func TestParseMaps(t *testing.T) {
	got := parseMaps(mapsText)
	want := []mapped{
		{Region{0x7efdb4409000, 0x7efdb4419000, 0x100000000, "r--s"}, 4048, ""},
		{Region{0x7efdb4500000, 0x7efdb4501000, 0x1000, "rw-s"}, 4049, "two words\nand a line"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(mapped{})); d != "" {
		t.Error(d)
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add(mapsText)
	f.Fuzz(func(t *testing.T, text string) {
		if n := len(parseMaps(text)); n > strings.Count(text, "\n")+1 {
			t.Errorf("%d mappings in %q", n, text)
		}
	})
}

const bufinfoText = `
Dma-buf Objects:
size    	flags   	mode    	count   	exp_name	ino     	name
00065536	00000002	00080007	00000003	drm	00004048	<none>
	Attached Devices:
	vgem
	0000:00:01.0
Total 2 devices attached

01048576	00000002	00080007	00000001	system	00004051	my	name
	write fence:drm_sched gfx signalled seq 8
	Attached Devices:
Total 0 devices attached


Total 2 objects, 1114112 bytes
`

func TestParseBufInfo(t *testing.T) {
	want := []KernelBuf{
		{Inode: 4048, Exporter: "drm", Size: 65536, Count: 3, Attached: []string{"vgem", "0000:00:01.0"}},
		{Inode: 4051, Exporter: "system", Name: "my\tname", Size: 1 << 20, Count: 1},
	}
	if d := cmp.Diff(want, parseBufInfo(bufinfoText)); d != "" {
		t.Error(d)
	}
	if got := parseBufInfo("\nDma-buf Objects:\n\nTotal 0 objects, 0 bytes\n"); got != nil {
		t.Errorf("an empty list has %+v", got)
	}
}

func FuzzParseBufInfo(f *testing.F) {
	f.Add(bufinfoText)
	f.Fuzz(func(t *testing.T, text string) { parseBufInfo(text) })
}
