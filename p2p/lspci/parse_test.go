// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The forms of a function's first line: lspci.c (show_terse) and lib/names.c
// (format_name, format_name_pair) of pciutils.
func TestHeadings(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"0000:18:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]", "0000:18:00.0 0207 15b3:1021"},
		{"0000:19:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)", "0000:19:00.0 0302 10de:2330"},
		{"0000:01:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. ASPEED Graphics Family [1a03:2000] (rev 52) (prog-if 00 [VGA controller])", "0000:01:00.0 0300 1a03:2000 00"},
		{"0000:1a:00.0 Non-Volatile memory controller [0108]: Samsung Electronics Co Ltd Device [144d:a826] (prog-if 02 [NVM Express])", "0000:1a:00.0 0108 144d:a826 02"},
		{"10000:80:00.0 Host bridge [0600]: Intel Corporation Device [8086:09ab]", "10000:80:00.0 0600 8086:09ab"}, // behind VMD
		{"00:04.0 Unassigned class [ffff]: Red Hat, Inc. Virtio 1.0 socket [1af4:1053] (rev 01)", "0000:00:04.0 ffff 1af4:1053"},
		{"00:00.0 Class [0600]: Device [8086:6f00] (rev 01)", "0000:00:00.0 0600 8086:6f00"},
		{"00:00.0 Class 0600: Device 8086:6f00 (rev 01)", "0000:00:00.0 0600 8086:6f00"}, // lspci without a list of names
		{"00:02.0 0300: 8086:0416 (rev 06) (prog-if 00)", "0000:00:02.0 0300 8086:0416 00"},
		{"3b:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)", "0000:3b:00.0 0302 :"},
		{"18:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]", "0000:18:00.0 0200 :"},
		{"18:00.0 PCI Bridge: NVIDIA Corporation Device 22b1", "0000:18:00.0 0604 :"},
		{"18:00.0 Contraption: Some Company Device 1234", "0000:18:00.0  :"},
		{"0000:18:20.0 3D controller [0302]: NVIDIA Corporation [10de:2330]", ""}, // a device is below 20
		{"0000:18:00.8 3D controller [0302]: NVIDIA Corporation [10de:2330]", ""},
		{"000:18:00.0 3D controller [0302]: NVIDIA Corporation [10de:2330]", ""},
		{"0000:18:00.0", ""},
		{"0000:18:00.0 hello", ""},
		{" 0000:18:00.0 3D controller [0302]: NVIDIA Corporation [10de:2330]", ""},
	} {
		got := ""
		if f, _ := headed(c.line); f != nil {
			got = strings.TrimSpace(fmt.Sprintf("%v %s %s:%s %s", f.addr, f.class, f.vendor, f.device, f.progIF))
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

// Lines of regions: show_bases and show_size of lspci.c.
func TestRegions(t *testing.T) {
	const head = "0000:00:00.0 3D controller [0302]: NVIDIA Corporation [10de:2330]\n\tStatus: Cap- 66MHz-\n"
	none := strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 6)
	for _, c := range []struct{ line, want string }{
		{"Region 0: Memory at 214000000000 (64-bit, prefetchable) [size=128G]", "0x0000214000000000 0x0000215fffffffff 0x0000000000102200\n" + none},
		{"Region 0: Memory at c6000000 (32-bit, non-prefetchable) [disabled] [size=16M]", "0x00000000c6000000 0x00000000c6ffffff 0x0000000000000200\n" + none},
		{"Region 0: Memory at 23fff800000 (64-bit, prefetchable) [virtual] [size=2M]", "0x0000023fff800000 0x0000023fff9fffff 0x0000000000102200\n" + none},
		{"Region 0: [virtual] Memory at 23fff800000 (64-bit, prefetchable) [size=2M]", "0x0000023fff800000 0x0000023fff9fffff 0x0000000000102200\n" + none}, // before 3.7.0
		{"Region 0: I/O ports at e000 [size=128]", "0x000000000000e000 0x000000000000e07f 0x0000000000000100\n" + none},
		{"Region 0: Memory at <unassigned> (64-bit, prefetchable) [disabled] [size=64G]", "0x0000000000000000 0x0000000fffffffff 0x0000000020102200\n" + none},
		{"Region 0: Memory at <ignored> (32-bit, non-prefetchable) [size=16M]", "0x0000000000000000 0x0000000000ffffff 0x0000000020000200\n" + none},
		// What these are is not known.
		{"Region 0: Memory at <broken-64-bit-slot> (64-bit, prefetchable) [size=64G]", ""},
		{"Region 0: Memory at c6000000 (type 3, non-prefetchable) [size=16M]", ""},
		{"Region 0: Memory at c6000000 (32-bit, non-prefetchable)", ""},
		{"Region 0: Memory at c6000000 (32-bit, non-prefetchable) [size=0]", ""},
		{"Region 0: Memory at c6000000 (32-bit, non-prefetchable) [size=16M", ""},
		{"Region 6: Memory at c6000000 (32-bit, non-prefetchable) [size=16M]", ""},
		{"Region 0: Memory at ffffffffffff0000 (64-bit, prefetchable) [size=1M]", ""},
		{"Region 0: Memory at 0 (64-bit, prefetchable) [size=9999999999T]", ""},
		{"Region 0: Memory at c6000000 (32-bit, non-prefetchable) [size=16M]\n\tRegion 1: Memory at c7\n\tRegion 2: Memory at c8000000 (32-bit, non-prefetchable) [size=16M]", ""},
		{"Region 0: Memory at c6000000 (32-bit, non-prefetchable) [size=16M]\n\tRegion 0: Memory at c7000000 (32-bit, non-prefetchable) [size=16M]", ""},
	} {
		e := machineOf(t, head+"\t"+c.line+"\n\n", "").of("0000:00:00.0")["resource"]
		if string(e.Data) != c.want || e.Unreadable != (c.want == "") {
			t.Errorf("%s:\n%s%v", c.line, e.Data, e.Unreadable)
		}
	}
}

// A text whose white space a browser, a mail or Windows has changed says the same.
func TestWhiteSpace(t *testing.T) {
	for _, name := range []string{"dgx.txt", "sriov.txt", "unprivileged.txt"} {
		text := fixture(t, name)
		whole := machineOf(t, text, "")
		for what, changed := range map[string]string{
			"carriage returns":      strings.ReplaceAll(text, "\n", "\r\n"),
			"blanks for tabs":       strings.ReplaceAll(text, "\t", "        "),
			"blanks at ends":        strings.ReplaceAll(text, "\n", " \n"),
			"a mark of UTF-8":       "\ufeff" + text,
			"a prompt before":       "root@node:~# lspci -vvvnn -D\n" + text,
			"warnings between":      strings.ReplaceAll(text, "\tKernel driver", "pcilib: sysfs_read_vpd: read failed: Input/output error\n\tKernel driver"),
			"bytes, of -xxx":        strings.ReplaceAll(text, "\n\n", "\n00: 86 80 a2 09 06 04 10 00 20 00 80 08 00 00 80 00\n10: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n\n"),
			"no empty line at last": strings.TrimSuffix(text, "\n"),
		} {
			m := machineOf(t, changed, "")
			if !maps.EqualFunc(whole.Files, m.Files, same) {
				t.Errorf("%s with %s is another machine", name, what)
			}
		}
	}
}

func same(a, b Entry) bool {
	return bytes.Equal(a.Data, b.Data) && a.Link == b.Link && a.Dir == b.Dir && a.Unreadable == b.Unreadable
}

// knowsLess compares what a part of a text says with what the whole text says: it
// can leave files unread and say less of the configuration space, and nothing else.
func knowsLess(t *testing.T, what string, part, whole *Machine) {
	t.Helper()
	for _, address := range part.addresses() {
		in, of := part.of(address), whole.of(address)
		if a, b := part.dirOf(address), whole.dirOf(address); a != b && !strings.Contains(a, unplaced) {
			t.Errorf("%s: %s is %s, and of the whole text it is %s", what, address, a, b)
		}
		for name, e := range in {
			all, there := of[name]
			switch {
			case e.Unreadable, e.Dir, there && same(e, all):
			case e.Link != "" && there:
				if to := path.Base(e.Link); to != path.Base(all.Link) && to != "?" {
					t.Errorf("%s: %s: %s is %q, and of the whole text it is %q", what, address, name, e.Link, all.Link)
				}
			case name == "config" && there && len(e.Data) < len(all.Data) && len(e.Data) != spaceSize && bytes.HasPrefix(all.Data, e.Data):
			case name == "driver" && e.Link != "" && path.Base(e.Link) == "?": // none is bound
			case strings.HasPrefix(name, "infiniband/"): // the driver may be one of a NIC
			default:
				t.Errorf("%s: %s: %s is %.40q of %d bytes, and of the whole text it is %.40q of %d", what, address, name, e.Data, len(e.Data), all.Data, len(all.Data))
			}
		}
		for name, e := range of {
			if _, there := in[name]; !there && !e.Unreadable {
				t.Errorf("%s: %s has no %s, and of the whole text it has", what, address, name)
			}
		}
	}
}

// A text that is cut off anywhere says nothing that the whole text does not.
func TestCutAnywhere(t *testing.T) {
	testenv.Exhaustive(t)
	for _, name := range []string{"sriov.txt", "old.txt", "unprivileged.txt", "brief.txt"} {
		text := fixture(t, name)
		whole := machineOf(t, text, "")
		tried := 0
		for n := 0; n < len(text); n++ {
			if text[n] != '\n' && n%97 != 0 {
				continue
			}
			for _, cut := range []string{text[:n], text[:n] + "\n"} {
				// A line that is cut off and ended can have lost digits, which no text shows.
				if strings.HasSuffix(cut, "\n") && text[n] != '\n' {
					continue
				}
				m, err := tryMachine(cut, "")
				if err != nil {
					if !errors.Is(err, ErrFormat) {
						t.Fatal(err)
					}
					continue
				}
				tried++
				knowsLess(t, fmt.Sprintf("%s cut at %d", name, n), m, whole)
			}
			if t.Failed() {
				return
			}
		}
		if tried < 90 {
			t.Errorf("%s: %d cuts were tried", name, tried)
		}
	}
}

// A text that lacks a function says nothing else of the others.
func TestWithoutAFunction(t *testing.T) {
	for _, name := range []string{"dgx.txt", "sriov.txt", "old.txt", "domains.txt", "unprivileged.txt"} {
		text := fixture(t, name)
		whole := machineOf(t, text, "")
		for _, address := range whole.addresses() {
			m := machineOf(t, without(t, text, address), "")
			if len(m.addresses()) != len(whole.addresses())-1 {
				t.Fatalf("%s is still there", address)
			}
			knowsLess(t, name+" without "+address, m, whole)
		}
	}
}

// Lines that a person has left out, and lines that are there twice, leave the
// registers unread.
func TestForeignLines(t *testing.T) {
	text := fixture(t, "dgx.txt")
	whole := machineOf(t, text, "").of("0000:17:00.0")["config"].Data
	at := strings.Index(text, "0000:17:00.0 ")
	end := at + strings.Index(text[at:], "\n\n")
	port := text[at:end]
	acs := port[strings.Index(port, "\tCapabilities: [150 v1]"):strings.Index(port, "\tKernel driver")]
	extended := port[strings.Index(port, "\tCapabilities: [100 v2]"):strings.Index(port, "\tKernel driver")]
	listed := port[strings.Index(port, "\tCapabilities: [40]"):strings.Index(port, "\tKernel driver")]
	swap := func(old, new string) string { return strings.Replace(port, old, new, 1) }
	const none, head, express, all = 0, headerSize, some, extendedSize
	for _, c := range []struct {
		what, port string
		most       int // of the configuration space: with all of it, ACS has no registers
	}{
		{"dots for a capability", swap(acs, "....\n"), head},
		{"indented dots", swap(acs, "\t...\n"), head},
		{"[...]", swap(acs, "[...]\n"), head},
		{"<snip>", swap(acs, "\t<snip>\n"), head},
		{"a remark", swap(acs, "the rest is as above\n"), head},
		{"ACS twice", swap(acs, acs+acs), head},
		{"two Express capabilities", swap("\tCapabilities: [100 v2]", "\tCapabilities: [70] Express (v2) Endpoint, MSI 00\n\tCapabilities: [100 v2]"), head},
		{"a loop", swap(acs, "\tCapabilities: [060] <chain looped>\n"), head},
		{"a broken chain", swap(acs, "\tCapabilities: [ff] <chain broken>\n"), head},
		{"two drivers", port + "\n\tKernel driver in use: vfio-pci", head},
		{"two nodes", swap("\tIOMMU group", "\tNUMA node: 1\n\tIOMMU group"), head},
		{"two states", swap("\tLatency", "\tStatus: Cap+ 66MHz-\n\tLatency"), head},
		{"two lines of buses", swap("\tMemory behind", "\tBus: primary=17, secondary=20, subordinate=20, sec-latency=0\n\tMemory behind"), head},
		{"a list that is not there", swap(listed, ""), head},
		{"only ACS", swap(listed, acs), head},
		{"some lines, of a grep", strings.SplitAfterN(port, "\n", 2)[0] + acs, none},
		{"no extended capabilities", swap(extended, ""), express},
		{"ACS without its second line", swap(acs, acs[:strings.LastIndex(acs, "\t\tACSCtl")]), all},
		{"ACS without its first line", swap("\t\tACSCap", "\t\tACS"), all},
		{"a flag that is not known", swap("ReqRedir+", "ReqRedirect+"), all},
		{"a flag that is missing", swap("ReqRedir+ ", ""), all},
		{"another order of flags", swap("ReqRedir+ CmpltRedir+", "CmpltRedir+ ReqRedir+"), all},
	} {
		if c.port == port {
			t.Fatalf("%s: nothing has changed", c.what)
		}
		of := machineOf(t, text[:at]+c.port+text[end:], "").of("0000:17:00.0")
		e := of["config"]
		if len(e.Data) != c.most || e.Unreadable != (c.most == none) {
			t.Errorf("%s: %d bytes of the configuration space are known, want %d", c.what, len(e.Data), c.most)
		}
		if c.most == all && (bytes.Equal(e.Data, whole) || e.Data[lastAt] != extACS) {
			t.Errorf("%s: ACS has registers", c.what)
		}
		// Lines of another function may have come in.
		if c.most == head && strings.HasPrefix(c.what, "two ") && c.what != "two Express capabilities" && path.Base(of["driver"].Link) != "?" {
			t.Errorf("%s: the driver is %q", c.what, of["driver"].Link)
		}
	}
}

// Lines of PCI Express without which its registers are not known.
func TestExpressIsUnread(t *testing.T) {
	text := fixture(t, "dgx.txt")
	for _, c := range []struct{ address, old, new string }{
		{"0000:15:01.0", "EgressBlck-", ""},
		{"0000:15:01.0", "ReqEn-", ""},
		{"0000:17:00.0", "AtomicOpsCtl:", "AtomicOps:"}, // lspci before 3.5.2
		{"0000:16:00.0", "EgressBlck-", "EgressBlck"},
		{"0000:18:00.0", "ReqEn-", "EgressBlck-"},
		{"0000:18:00.0", "RlxdOrd+", "RlxdOrd"},
		{"0000:18:00.0", "MaxReadReq 4096 bytes", "MaxReadReq 4000 bytes"},
		{"0000:18:00.0", "MaxReadReq 4096 bytes", "MaxReadReq"},
		{"0000:18:00.0", "DevCap:\tMaxPayload 512 bytes", "DevCap:\tMaxPayload 64 bytes"},
		{"0000:18:00.0", "Express (v2) Endpoint", "Express (v2) Unknown type 15"},
	} {
		at := strings.Index(text, "\n"+c.address+" ")
		changed := text[:at] + strings.Replace(text[at:], c.old, c.new, 1)
		data := machineOf(t, changed, "").of(c.address)["config"].Data
		if changed == text || len(data) > expressAt+expressDevCap {
			t.Errorf("%s without %q: %d bytes of the configuration space are known", c.address, c.old, len(data))
		}
	}
}

// Lines of sizes that a BAR can have: cap_rebar of ls-ecaps.c.
func TestResizableBARs(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"BAR 2: current size: 128GB, supported: 64MB 128MB 256MB 512MB 1GB 2GB 4GB 8GB 16GB 32GB 64GB 128GB", "[{2 262080}]"},
		{"BAR 0: current size: 1MB, supported: 1MB 1TB", "[{0 1048577}]"},
		{"BAR 1: current size: 1MB", "[{1 0}]"}, // no size at all
		{"BAR 0: current size: 3MB, supported: 3MB", ""},
		{"BAR 0: current size: 1MB, supported: 256TB", ""}, // in the other register
		{"BAR 6: current size: 1MB, supported: 1MB", ""},
		{"BAR 0: current size: 1MB, supported: 1M", ""},
		{"<unreadable>", ""},
		{"<error in resizable BAR: num_bars=7 is out of specification>", ""},
		{"", ""}, // before 3.7.0: “Resizable BAR <?>”
	} {
		var r rebar
		if c.line != "" {
			r.add(c.line)
		}
		got := ""
		if r.read() {
			got = fmt.Sprint(r.bars)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.line, got, c.want)
		}
	}
}

// Texts that are refused, with the reason and the command.
func TestRefused(t *testing.T) {
	two := "0000:00:00.0 Host bridge [0600]: Intel Corporation [8086:1237]\n"
	deep := ""
	for n := range 40 {
		deep += fmt.Sprintf("0000:%02x:00.0 PCI bridge [0604]: Intel Corporation [8086:1237]\n\tBus: primary=%02x, secondary=%02x, subordinate=ff, sec-latency=0\n\n", n, n, n+1)
	}
	for _, c := range []struct{ text, want string }{
		{"", "it is empty"},
		{"\n\n", "no line begins a function"},
		{"hello\nworld\n", "no line begins a function"},
		{"12:34:56.7 cron: started\n", "no line begins a function"},
		{two + two, "0000:00:00.0 is there twice, in lines 1 and 2"},
		{"Slot:\t0000:00:00.0\nClass:\tHost bridge\n", "lspci -vmm: leave out -m"},
		{"00:00.0 \"Host bridge\" \"Intel Corporation\" \"Device 1237\" \"\" \"\"\n", "lspci -mm: leave out -m"},
		{fixture(t, "dgx-tree.txt"), "by --lspci-tree"},
		{"\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV18\tPIX\t0-55\n", "nvidia-smi topo -m"},
		{`[{"realpath":"/sys/devices/pci0000:00/0000:00:00.0"}]`, "which --snapshot takes"},
		{"\x1f\x8b\x08\x00\x00", "which --snapshot takes"},
		{"\xff\xfe0\x000\x000\x000\x00", "a byte of 0"},
		{"\xff\xfejunk\n", "does not begin with text"},
		{two + "\tStatus: \x00\n", "line 2 has a byte of 0"},
		{strings.Repeat("x", widthLimit+1), "line 1 is longer than 16 KiB"},
		{deep, "below more than 32 bridges"},
	} {
		_, err := tryMachine(c.text, "")
		if !errors.Is(err, ErrFormat) || !strings.Contains(fmt.Sprint(err), c.want) || !strings.Contains(fmt.Sprint(err), Command) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
}

// A large text takes no more memory than there is for one.
func TestLimits(t *testing.T) {
	testenv.Exhaustive(t)
	for line, want := range map[string]string{strings.Repeat("x", widthLimit/2) + "\n": "larger than 64 MiB", "x\n": "more than 2000000 lines"} {
		endless := io.MultiReader(strings.NewReader("0000:00:00.0 Host bridge [0600]: Intel Corporation [8086:1237]\n"), forever(line))
		if _, err := Parse(endless); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	var many strings.Builder
	for n := range functionLimit + 1 {
		fmt.Fprintf(&many, "%04x:%02x:%02x.%x Host bridge [0600]: Intel Corporation [8086:1237]\n", n>>16, n>>8&0xff, n>>3&0x1f, n&7)
	}
	if _, err := Parse(strings.NewReader(many.String())); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "more than 10000 functions") {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := Parse(iotest.ErrReader(broken)); !errors.Is(err, broken) || errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

// forever repeats a text.
type forever string

func (f forever) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], f)
	}
	return n, nil
}

// A text in which a person has put dots for a capability says nothing that the whole
// text does not.
func TestLinesLeftOut(t *testing.T) {
	text := fixture(t, "dgx.txt")
	whole := machineOf(t, text, "")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	lines := strings.SplitAfter(text, "\n")
	for range 60 {
		// A whole block of a capability: a person who shortens a text takes these.
		at := r.IntN(len(lines))
		for !strings.HasPrefix(lines[at], "\tCapabilities: ") {
			at = r.IntN(len(lines))
		}
		end := at + 1
		for strings.HasPrefix(lines[end], "\t\t") {
			end++
		}
		changed := slices.Concat(lines[:at], []string{"...\n"}, lines[end:])
		m := machineOf(t, strings.Join(changed, ""), "")
		knowsLess(t, fmt.Sprintf("without lines %d to %d", at+1, end), m, whole)
	}
}
