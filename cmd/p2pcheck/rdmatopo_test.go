// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// dump writes a machine as rdma_topo does.
func dump(t testing.TB, root string) []map[string]any {
	t.Helper()
	var out []map[string]any
	links, err := filepath.Glob(root + "/sys/bus/pci/devices/*")
	if err != nil {
		t.Fatal(err)
	}
	attr := func(link, name string) string {
		text, err := os.ReadFile(filepath.Join(link, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(strings.TrimPrefix(string(text), "0x"))
	}
	for _, link := range links {
		class := strings.ToUpper(attr(link, "class"))
		if class == "060000" || class == "088000" {
			continue // rdma_topo leaves host bridges out
		}
		real, err := filepath.EvalSymlinks(link)
		if err != nil {
			t.Fatal(err)
		}
		config, err := os.ReadFile(filepath.Join(link, "config"))
		if err != nil {
			t.Fatal(err)
		}
		d := map[string]any{
			"realpath": strings.TrimPrefix(real, root),
			"config":   deflated(config),
			"modalias": fmt.Sprintf("pci:v0000%sd0000%ssv00000000sd00000000bc%ssc%si%s", strings.ToUpper(attr(link, "vendor")), strings.ToUpper(attr(link, "device")), class[:2], class[2:4], class[4:]),
		}
		d["iommu_group"], d["vpd"] = nil, nil
		if group, err := os.Readlink(filepath.Join(link, "iommu_group")); err == nil {
			d["iommu_group"], _ = strconv.Atoi(filepath.Base(group))
		}
		if vpd, err := os.ReadFile(filepath.Join(link, "vpd")); err == nil {
			d["vpd"] = deflated(vpd)
		}
		if nics, err := os.ReadDir(filepath.Join(link, "infiniband")); err == nil {
			d["subsystems"] = map[string][]string{"infiniband": {nics[0].Name()}}
		}
		out = append(out, d)
	}
	return out
}

// deflated is a file as a dump has it.
func deflated(data []byte) string {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(data)
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

func dumpFile(t testing.TB, all any) string {
	t.Helper()
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A dump of rdma_topo has the machine's tree and ACS. The rest is unknown.
func TestDumpOfRDMATopo(t *testing.T) {
	root := bad().Write(t)
	file := dumpFile(t, dump(t, root))
	r := command("topo", "--snapshot", file)
	if r.status != cli.ExitOK || r.err != "" {
		t.Errorf("%+v", r)
	}
	// The tree is that of the machine, but for what the file does not have.
	lacking := regexp.MustCompile(`, (32.0 GT/s x16|IOMMU \w+( group \d+)?|node \d|BAR 0 \w+)|(?:nvidia|\(driver unknown\)) `)
	tree := func(text string) string {
		_, text, _ = strings.Cut(text, "\npci")
		text, _, _ = strings.Cut(text, "\n\nGPU")
		return lacking.ReplaceAllString(text, "")
	}
	whole := command("topo", "--root", root)
	if got, want := tree(r.out), tree(whole.out); got != want || !strings.Contains(got, "ACS request redirect") {
		t.Errorf("%s\n%s", got, want)
	}
	// Without kernel, processor and host bridges no pair is direct.
	if r := command("--snapshot", file, "--skip", "all"); r.status != cli.ExitUnavailable || !strings.Contains(r.out, "0 direct") {
		t.Errorf("%+v", r)
	}
	m := machine.Open(root)
	a, _ := machine.ParseAddr("0000:13:00.0")
	b, _ := machine.ParseAddr("0000:14:00.0")
	if d := p2pdma.Decide(m, a, &b); len(d.Redirects) != 2 {
		t.Error(d)
	}
}

// No check passes for a dump because a file is absent from it.
func TestDumpPassesNothingItDoesNotHave(t *testing.T) {
	root := testenv.Machines["small-mi300"]().Write(t)
	var d struct{ Result result.Run }
	if err := json.Unmarshal([]byte(command("--json", "--snapshot", dumpFile(t, dump(t, root))).out), &d); err != nil {
		t.Fatal(err)
	}
	var passed []string
	for _, f := range d.Result.Checks {
		if f.Result == "pass" && !slices.Contains(passed, f.ID) {
			passed = append(passed, f.ID)
		}
	}
	// These go by the tree, the configuration space and the IOMMU's groups, whose types no dump has.
	want := []string{
		"ENV-CFGSPACE", "ENV-NETNS", "P2P-ACS-LIST", "P2P-DIST", "ISO-ACS-SOURCE", "ISO-ACS-PORT", "ISO-ACS-QUIRK", "ISO-RO", "ISO-GROUP",
		"PCIE-MPS", "PCIE-MRRS", "PCIE-VMD", "NIC-PRESENT", "K8S-PCIEROOT",
	}
	if !slices.Equal(passed, want) {
		t.Errorf("%v pass, want %v", passed, want)
	}
}

// A dump has the cards of NICs and of their DMA functions, and the IOMMU's groups: the tree is the
// machine's. A dump of a version that has neither says nothing about them.
func TestDumpOfDataDirect(t *testing.T) {
	all := testenv.Corpus(t)
	tray := all[slices.IndexFunc(all, func(c testenv.CorpusMachine) bool { return c.Name == "case-07-gb300-data-direct" })]
	root := tray.Tree.Write(t)
	functions := dump(t, root)
	r := command("topo", "--snapshot", dumpFile(t, functions))
	if !strings.Contains(r.out, "DMA function of mlx5_0") || strings.Contains(r.out, "IOMMU none") {
		t.Errorf("%+v", r)
	}
	for _, f := range functions {
		delete(f, "vpd")
		delete(f, "iommu_group")
	}
	r = command("topo", "--snapshot", dumpFile(t, functions))
	if strings.Contains(r.out, "DMA function of mlx5_0") || strings.Contains(r.out, "IOMMU none") || strings.Contains(r.out, " group ") {
		t.Errorf("%+v", r)
	}
}

func TestBrokenDumps(t *testing.T) {
	good := dump(t, testenv.Machines["small-hgx"]().Write(t))
	for what, change := range map[string]func(d map[string]any){
		"a path that leads out":  func(d map[string]any) { d["realpath"] = "/sys/devices/../../etc/0000:01:00.0" },
		"another path":           func(d map[string]any) { d["realpath"] = "/etc/0000:01:00.0" },
		"no address":             func(d map[string]any) { d["realpath"] = "/sys/devices/pci0000:00/x" },
		"no modalias":            func(d map[string]any) { delete(d, "modalias") },
		"no base64":              func(d map[string]any) { d["config"] = "%" },
		"no zlib":                func(d map[string]any) { d["config"] = "aGVsbG8=" },
		"a name that leads out":  func(d map[string]any) { d["subsystems"] = map[string]any{"infiniband": []string{"../../../x"}} },
		"a node that is a text":  func(d map[string]any) { d["numa_node"] = "x" },
		"a group that is a text": func(d map[string]any) { d["iommu_group"] = "x" },
		"vpd without base64":     func(d map[string]any) { d["vpd"] = "%" },
		"vpd that is too large":  func(d map[string]any) { d["vpd"] = deflated(make([]byte, vpdLimit+1)) },
		"another form of entry":  func(d map[string]any) { d["subsystems"] = 7 },
	} {
		d := map[string]any{}
		for k, v := range good[3] {
			d[k] = v
		}
		change(d)
		if r := command("--snapshot", dumpFile(t, []any{good[0], d})); r.status != cli.ExitUsage || r.err == "" {
			t.Errorf("%s: %+v", what, r)
		}
	}
	for _, text := range []string{"[", "[1]", "[]x", "[{}]"} {
		file := filepath.Join(t.TempDir(), "dump")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := command("--snapshot", file); r.status == cli.ExitOK {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

// A dump without a device is an error, and no machine without a GPU.
func TestDumpOfNothing(t *testing.T) {
	for _, text := range []string{"[]", "[ ]\n", "\n[\n]"} {
		file := filepath.Join(t.TempDir(), "dump")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--snapshot", file}, {"topo", "--snapshot", file}} {
			r := command(args...)
			if r.status != cli.ExitUsage || r.out != "" || !strings.Contains(r.err, "a dump of rdma_topo that names no device: one for each PCI function was expected") {
				t.Errorf("%q, %q: %+v", text, args, r)
			}
		}
	}
}

// A small file does not become a large one.
func TestDumpBombs(t *testing.T) {
	testenv.Exhaustive(t)
	packed := func(n int) string {
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		if _, err := z.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(b.Bytes())
	}
	one := func(i int, config string, names ...string) map[string]any {
		return map[string]any{
			"realpath": fmt.Sprintf("/sys/devices/pci0000:00/%04x:%02x:%02x.%d", i>>16, i>>8&0xff, i>>3&0x1f, i&7), "config": config,
			"modalias": "pci:v00008086d00001234sv00000000sd00000000bc02sc00i00", "subsystems": map[string]any{"infiniband": names},
		}
	}
	// One page of configuration space is what a function has.
	for n, ok := range map[int]bool{256: true, 4096: true, 4097: false, 1 << 20: false} {
		_, err := fromDump(bytes.NewReader(marshalled(t, []any{one(0, packed(n))})))
		if (err == nil) != ok {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	var many []any
	config := packed(4096)
	for i := range functionLimit + 1 {
		many = append(many, one(i, config))
	}
	if _, err := fromDump(bytes.NewReader(marshalled(t, many))); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Error(err)
	}
	if _, err := fromDump(bytes.NewReader(marshalled(t, []any{one(0, config, make([]string, namesLimit+1)...)}))); err == nil || !strings.Contains(err.Error(), "too many RDMA devices") {
		t.Error(err)
	}
	if _, err := fromDump(strings.NewReader("[")); err == nil {
		t.Error("an end that is missing is none")
	}
}

func marshalled(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A hostile dump crashes nothing, writes nothing outside of its directory, and makes no good machine:
// a dump lacks the files that decide.
func FuzzDump(f *testing.F) {
	for _, name := range []string{"small-hgx", "small-mi300"} {
		all := dump(f, testenv.Machines[name]().Write(f))
		f.Add(marshalled(f, all))
		for _, d := range all {
			f.Add(marshalled(f, []any{d}))
		}
		whole := marshalled(f, all[:2])
		for n := 0; n < len(whole); n += 1 + len(whole)/20 {
			f.Add(whole[:n])
		}
	}
	for _, odd := range []string{"", "[", "[]", "[]]", "[null]", "[{}]", "[[]]", " [1,2]", `[{"realpath":"/sys/devices/pci0000:00/../../../x/0000:01:00.0"}]`, `["` + strings.Repeat("x", 1<<16)} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := fromDump(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, errSnapshot) {
				t.Errorf("%v", err)
			}
			return
		}
		for name, e := range entries {
			outside := !filepath.IsLocal(name) || path.Clean(name) != name
			if outside || e.link != "" && !filepath.IsLocal(path.Join(path.Dir(name), e.link)) {
				t.Errorf("%q leads to %q", name, e.link)
			}
		}
		file := filepath.Join(t.TempDir(), "dump.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--snapshot", file}, {"topo", "--snapshot", file}} {
			r := command(args...)
			if r.status < cli.ExitOK || r.status > cli.ExitUnavailable || strings.ContainsAny(r.out+r.err, "\x1b\x00") || r.status == cli.ExitOK && args[0] != "topo" {
				t.Errorf("%q: status %d", args, r.status)
			}
		}
	})
}
