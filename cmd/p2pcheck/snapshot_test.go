// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"

	"github.com/gpurdma/gpurdma/internal/files"
)

// command runs the command.
func command(args ...string) outcome {
	var out, err bytes.Buffer
	a := &app{stdout: &out, stderr: &err}
	status := a.run(args)
	return outcome{status, out.String(), err.String()}
}

// taken is a snapshot of a machine, and the directory of that.
func taken(t *testing.T, tree testenv.Tree) (file, root string) {
	t.Helper()
	root = tree.Write(t)
	file = filepath.Join(t.TempDir(), "machine.tar.gz")
	if r := command("snapshot", file, "--root", root); r.status != 0 {
		t.Fatal(r)
	}
	return file, root
}

// unflagged is a report without the flags of the command that it names to be run next.
func unflagged(out string) string { return nextCommand.ReplaceAllString(out, "$1") }

var nextCommand = regexp.MustCompile(`(?m)^( +p2pcheck why \S+ \S+) .*$`)

// A snapshot of a machine is as good as the machine, for every command.
func TestSnapshotIsTheMachine(t *testing.T) {
	machines := map[string]testenv.Tree{}
	for name, machine := range testenv.Machines {
		machines[name] = machine()
	}
	if !testing.Short() {
		for _, c := range testenv.Corpus(t) {
			if c.Tree.Functions != "" { // or it is a processor only
				machines["corpus/"+c.Name] = c.Tree
			}
		}
	}
	for name, tree := range machines {
		file, root := taken(t, tree)
		every := [][]string{{"--json"}, {"-v"}, {"topo"}}
		if strings.HasPrefix(name, "corpus/") {
			every = every[:1] // which has all that the others print
		}
		for _, args := range every {
			whole := command(append(slices.Clone(args), "--root", root)...)
			copied := command(append(slices.Clone(args), "--snapshot", file)...)
			want := strings.NewReplacer(root, "", "user.slice", groupName).Replace(whole.out)
			if args[0] == "-v" { // where lines end depends on the length of the directory's name
				want, copied.out = flat(unflagged(want)), flat(unflagged(copied.out))
			}
			if copied.out != want || copied.status != whole.status || copied.err != strings.ReplaceAll(whole.err, root, "") {
				t.Errorf("%s %v: status %d and %d\n%s\n%s\n%s", name, args, whole.status, copied.status, firstDifference(want, copied.out), whole.err, copied.err)
			}
		}
	}
}

// The function that moves a NIC's data has the class of neither a NIC nor a bridge. A snapshot has it, since
// its way decides, too.
func TestSnapshotHasDirectData(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	tree.Functions = strings.ReplaceAll(tree.Functions, "device=0x1021", "device=0x1023") +
		"pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:04.0 class=0x080100 vendor=0x15b3 device=0x2100 driver:mlx5_ib\n"
	file, root := taken(t, tree)
	whole, copied := command("-v", "--root", root).out, command("-v", "--snapshot", file).out
	want := flat(strings.NewReplacer(root, "", "user.slice", groupName).Replace(whole))
	if copied = flat(copied); copied != want || !strings.Contains(copied, "by 0000:12:04.0 direct") {
		t.Errorf("%s\n%s", firstDifference(want, copied), copied)
	}
	if !strings.Contains(members(t, file), "0000:12:04.0/config") {
		t.Error("its configuration space is not there")
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return x[i] + "\n" + y[i]
		}
	}
	return "one is longer"
}

// secrets are files with values that must not leave the machine.
var secrets = map[string]string{
	"proc/cmdline":      "BOOT_IMAGE=/vmlinuz root=UUID=5ecre7-0001 iommu=pt\n",
	"proc/self/environ": "PASSWORD=5ecre7\x00NCCL_COMM_ID=5ecre7.example.com:7\x00NCCL_HOSTID=5ecre7\x00NCCL_IB_HCA=mlx5_0,mlx5_1\x00",
	"proc/1/cgroup":     "0::/kubepods/pod5ecre7\n",
	"proc/self/cgroup":  "0::/kubepods/pod5ecre7\n",
	"sys/fs/cgroup/kubepods/pod5ecre7/rdma.max":        "mlx5_0 hca_handle=1\n",
	"sys/fs/cgroup/kubepods/pod5ecre7/rdma.current":    "mlx5_0 hca_handle=1\n",
	"proc/self/mountinfo":                              "24 1 0:22 / /dev/shm rw - tmpfs tmpfs rw,size=65536k\n25 1 0:23 / / rw - overlay overlay rw,lowerdir=/5ecre7\n",
	"proc/driver/nvidia/params":                        "DmaRemapPeerMmio: 1\nGrdmaPciTopoCheckOverride: 0\nEnableResizableBar: 0\nRegistryDwords: \"PeerMappingOverride=1;Of5ecre7=1\"\nExcludedGpus: \"GPU-5ecre7\"\n",
	"proc/driver/nvidia/gpus/0000:13:00.0/information": "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-5ecre7\nVideo BIOS: \t 96.00\nSerial: 5ecre7\n",
	"sys/class/kfd/kfd/topology/nodes/1/properties":    "gfx_target_version 90402\nunique_id 5ecre7\n",
	"proc/driver/nvidia/version":                       "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@5ecre7)\n",
	"sys/class/net/wg-5ecre7/mtu":                      "1420\n",
	"sys/class/net/enxa088c25ec2e7/operstate":          "up\n",
	"proc/self/status":                                 "Name:\t5ecre7\nCapEff:\t0\n",
	"dev/kmsg":                                         "6,1,2,-;user 5ecre7 logged in\n4,2,3,-;mlx5_core 0000:14:00.0: 63 Gb/s available PCIe bandwidth, limited by a0:88:c2:5e:c2:e7\n",
}

func TestSnapshotTellsNoSecrets(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	maps.Copy(tree.Files, secrets)
	root := tree.Write(t)
	nic := filepath.Join(root, "sys/bus/pci/devices/0000:14:00.0")
	vpd := pci.VPD(pci.VPDField{Keyword: "SN", Value: "5ecre7"}, pci.VPDField{Keyword: "V3", Value: "5ecre7-card"}, pci.VPDField{Keyword: "VU", Value: "5ecre7-unit"})
	if err := os.WriteFile(filepath.Join(nic, "vpd"), vpd, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "machine.tar.gz")
	if r := command("snapshot", file, "--root", root); r.status != 0 {
		t.Fatal(r)
	}
	plain := members(t, file)
	if !strings.Contains(plain, "card-1") || !strings.Contains(plain, "Model: \t\t NVIDIA H100") {
		t.Error("the card of the NIC or the model of the GPU is not there")
	}
	for _, secret := range []string{"5ecre7", "a088:c2", "a288:c2", "a0:88:c2", "0a00:0001", "a088c2"} {
		if i := strings.Index(plain, secret); i >= 0 {
			t.Errorf("%q is there: %q", secret, plain[max(0, i-60):min(len(plain), i+40)])
		}
	}
	// The checks still find the values that they need.
	out := flat(command("-v", "--snapshot", file).out)
	for _, want := range []string{"kubepods", "hca_handle: 1 of 1", "64 MiB", "limited by 00:00:00:00:00:00", "NCCL_IB_HCA=mlx5_0,mlx5_1", "index 3", "iommu=pt", "580.95.05 Release Build"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

// A limit of a control group above counts as well as the process's own group's.
func TestSnapshotHasGroupsAbove(t *testing.T) {
	for name, full := range map[string]string{"own": "5ecre7.slice/podman.service/5ecre7.scope", "in the middle": "5ecre7.slice/podman.service", "first": "5ecre7.slice"} {
		tree := testenv.Machines["small-hgx"]()
		tree.Files["proc/self/cgroup"] = "0::/5ecre7.slice/podman.service/5ecre7.scope\n"
		tree.Files["sys/fs/cgroup/"+full+"/rdma.max"] = "mlx5_0 hca_handle=3 hca_object=max\n"
		tree.Files["sys/fs/cgroup/"+full+"/rdma.current"] = "mlx5_0 hca_handle=3 hca_object=1\n"
		file, _ := taken(t, tree)
		if strings.Contains(members(t, file), "5ecre7") {
			t.Errorf("%s: its name is there", name)
		}
		r := command("-v", "--snapshot", file)
		if !strings.Contains(r.out, "hca_handle: 3 of 3") || !strings.Contains(r.out, "> /sys/fs/cgroup/GROUP/rdma.max") {
			t.Errorf("%s: no group at its limit: %s", name, r.out)
		}
	}
}

// The limits of a control group outside of the visible ones are unknown, on the machine and in a snapshot.
func TestSnapshotOfAGroupOutside(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	tree.Files["proc/self/cgroup"] = "0::/../5ecre7.slice\n"
	file, _ := taken(t, tree)
	if r := command("-v", "--snapshot", file); !strings.Contains(r.out, "the control group is outside of those") {
		t.Error(r.out)
	}
}

// A device that is named after its MAC or GUID has another name in a snapshot,
// and what is said of it is the same.
func TestSnapshotRenames(t *testing.T) {
	const mac, guid = "a088c25ec2e7", "a088c203005ec2e7"
	tree := testenv.Machines["small-hgx"]()
	rename := func(text string) string {
		return strings.NewReplacer("mlx5_0", "rocex"+guid, "eth0", "enx"+mac).Replace(text)
	}
	tree.Functions = rename(tree.Functions)
	tree.Files["sys/class/net/eth0/operstate"] = "down\n"
	tree.Files["sys/class/infiniband_verbs/uverbs0/ibdev"] = "mlx5_0\n"
	tree.Files["proc/self/environ"] = "NCCL_IB_HCA=mlx5_0,mlx5_1\x00NCCL_SOCKET_IFNAME=eth0\x00"
	tree.Files["dev/kmsg"] = "6,1,2,-;x\n4,2,3,-;mlx5_core 0000:14:00.0 eth0: 63 Gb/s available PCIe bandwidth, limited by 0x2000000000000\n"
	for name, text := range maps.Clone(tree.Files) {
		delete(tree.Files, name)
		tree.Files[rename(name)] = rename(text)
	}
	for name, target := range maps.Clone(tree.Links) {
		delete(tree.Links, name)
		tree.Links[rename(name)] = rename(target)
	}
	file, root := taken(t, tree)
	if names := members(t, file); strings.Contains(names, mac) || strings.Contains(names, guid) {
		t.Error("the MAC or the GUID is there")
	}
	whole, copied := command("-v", "--root", root), command("-v", "--snapshot", file)
	again := strings.NewReplacer(root, "", "user.slice", groupName, guid, "0000000000000001", mac, "000000000002").Replace(whole.out)
	if copied.status != whole.status || copied.out != again {
		t.Errorf("status %d and %d: %s", whole.status, copied.status, firstDifference(again, copied.out))
	}
	if !strings.Contains(copied.out, "NCCL_IB_HCA=rocex") || !strings.Contains(copied.out, "enx000000000002: 63 Gb/s") || !strings.Contains(copied.out, "by 0x2000000000000") {
		t.Error(copied.out)
	}
}

// members are the names and contents of a snapshot.
func members(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

// A file that could not be read for the snapshot is unknown in it, not absent.
func TestSnapshotOfWhatCannotBeRead(t *testing.T) {
	tree := testenv.Machines["small-mi300"]()
	root := tree.Write(t)
	for _, name := range []string{"proc/self/limits", "dev/kmsg", "sys/kernel/tracing/events"} {
		file := filepath.Join(root, name)
		if err := errors.Join(os.RemoveAll(file), os.Symlink(filepath.Base(file), file)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "machine.tar.gz")
	if r := command("snapshot", file, "--root", root); r.status != 0 || !strings.Contains(r.out, "3 could not be read") {
		t.Fatal(r)
	}
	var d struct{ Result result.Run }
	if err := json.Unmarshal([]byte(command("--json", "--snapshot", file).out), &d); err != nil {
		t.Fatal(err)
	}
	unknown := map[string]bool{}
	for _, f := range d.Result.Checks {
		if f.Result == "unknown" {
			unknown[f.ID] = true
		}
	}
	for _, id := range []string{"LIM-MEMLOCK", "KRN-KMSG", "ISO-FAULTS", "KRN-TRACEPOINTS"} {
		if !unknown[id] {
			t.Errorf("%s is not unknown", id)
		}
	}
}

// member is a file of an archive.
type member struct {
	name, link string
	kind       byte
	data       string
	pax        map[string]string
}

func archived(t *testing.T, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Linkname: m.link, Typeflag: m.kind, Size: int64(len(m.data)), Mode: 0o600, PAXRecords: m.pax}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func goodManifest(t *testing.T) member {
	t.Helper()
	text, err := json.Marshal(manifest{snapshotSchema, "1", patterns()})
	if err != nil {
		t.Fatal(err)
	}
	return member{name: manifestName, kind: tar.TypeReg, data: string(text)}
}

func TestUnpackRefuses(t *testing.T) {
	good := goodManifest(t)
	file := func(name string) member { return member{name: name, kind: tar.TypeReg, data: "x"} }
	link := func(name, to string) member { return member{name: name, kind: tar.TypeSymlink, link: to} }
	old, err := json.Marshal(manifest{snapshotSchema, "0.1", patterns()[1:]})
	if err != nil {
		t.Fatal(err)
	}
	for what, members := range map[string][]member{
		"nothing":             {},
		"no manifest":         {file("sys/x")},
		"another manifest":    {{name: manifestName, kind: tar.TypeReg, data: `{"schema":"other/v1"}`}},
		"no JSON":             {{name: manifestName, kind: tar.TypeReg, data: "{"}},
		"an older one":        {{name: manifestName, kind: tar.TypeReg, data: string(old)}},
		"up":                  {good, file("../x")},
		"up in the middle":    {good, file("sys/../../x")},
		"not clean":           {good, file("sys//x")},
		"absolute":            {good, file("/etc/x")},
		"a link up":           {good, link("sys/x", "../../etc")},
		"an absolute link":    {good, link("sys/x", "/etc/passwd")},
		"up behind a name":    {good, link("a/b/c/x", "../../.."), link("y", "a/b/c/x/../..")},
		"below a link":        {good, link("a/b/c/x", "../../.."), link("a/b/c/x/y", "../../..")},
		"below a file":        {good, file("a"), file("a/b")},
		"twice":               {good, file("a"), file("a")},
		"a link for a dir":    {good, file("a/b"), link("a", "c")},
		"a device":            {good, {name: "dev/x", kind: tar.TypeChar}},
		"a hard link":         {good, {name: "x", kind: tar.TypeLink, link: "../../etc/passwd"}},
		"a manifest's link":   {link(manifestName, "x")},
		"an empty link":       {good, link("x", "")},
		"a name that is long": {good, file(strings.Repeat("x/", 600) + "x")},
	} {
		if _, err := unpack(bytes.NewReader(archived(t, members...))); !errors.Is(err, errSnapshot) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := unpack(bytes.NewReader(archived(t, good, file("sys/a/b"), link("sys/c", "a/b"), link("proc/1/ns/user", "user:[1]")))); err != nil {
		t.Error(err)
	}
}

// A small archive cannot make much: depth, count and memory are bounded, and the error says which. Each is
// refused in a second, with threefold slack.
func TestSnapshotsThatAreTooLarge(t *testing.T) {
	testenv.Exhaustive(t)
	good := goodManifest(t)
	several := func(n int, of func(i int) member) []member {
		out := []member{good}
		for i := range n {
			out = append(out, of(i))
		}
		return out
	}
	deep := func(i int) string { return fmt.Sprintf("%d/", i) + strings.Repeat("x/", depthLimit-2) + "x" }
	for what, c := range map[string]struct {
		members []member
		want    string
	}{
		"deep":        {several(1, func(int) member { return member{name: deep(0) + "/x", kind: tar.TypeReg} }), "deeper than 32"},
		"directories": {several(entryLimit/(depthLimit-1)+1, func(i int) member { return member{name: deep(i), kind: tar.TypeDir} }), "more than 1000000 files and directories"},
		"large": {several(20, func(i int) member {
			return member{name: fmt.Sprint(i), kind: tar.TypeReg, data: strings.Repeat("x", fileLimit-1)}
		}), "larger than 192 MiB"},
		"one file": {several(1, func(int) member { return member{name: "x", kind: tar.TypeReg, data: strings.Repeat("x", fileLimit+1)} }), "larger than 192 MiB"},
		"names of links": {several(210_000, func(i int) member {
			return member{name: fmt.Sprint(i), kind: tar.TypeSymlink, link: strings.Repeat("x", 1000)}
		}), "larger than 192 MiB"},
	} {
		t.Run(what, func(t *testing.T) {
			data := archived(t, c.members...)
			begun := time.Now()
			_, err := unpack(bytes.NewReader(data))
			took := time.Since(begun)
			if !errors.Is(err, errSnapshot) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			t.Logf("%d KiB refused in %v", len(data)>>10, took)
			if took > 3*time.Second {
				t.Errorf("refused in %v", took)
			}
		})
	}
	// What stands behind the end is bounded, too.
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, part := range [][]byte{archived(t, good), make([]byte, 64<<20)} {
		if _, err := z.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(&b); !errors.Is(err, errSnapshot) || !strings.Contains(err.Error(), "more behind its end") {
		t.Error(err)
	}
}

// A part of a snapshot is no snapshot.
func TestUnpackOfAPart(t *testing.T) {
	file, _ := taken(t, testenv.Machines["small-mi300"]())
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += max(1, min(len(whole)/25, len(whole)-n-1)) {
		part := filepath.Join(t.TempDir(), "part")
		if err := os.WriteFile(part, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if r := command("--snapshot", part); r.status != cli.ExitUsage || !strings.Contains(r.err, "cut off") && n > 1 {
			t.Fatalf("%d of %d bytes: status %d, %s", n, len(whole), r.status, r.err)
		}
	}
}

// bad is a machine with one thing wrong of each kind.
func bad() testenv.Tree {
	tree := testenv.Machines["small-hgx"]()
	tree.Functions = strings.ReplaceAll(tree.Functions, "type=6 vendor=0x1000 device=0xc030 acs=0x00", "type=6 vendor=0x1000 device=0xc030 acs=0x04")
	tree.Files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570\n"
	tree.Files["sys/module/nvidia/taint"] = "POE\n"
	return tree
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x1f\x8b"))
	var b bytes.Buffer
	if err := pack(&b, map[string]entry{"sys": {dir: true}, "sys/a": {data: []byte("1")}, "sys/b": {link: "a"}, "sys/c": {unreadable: true}}); err != nil {
		f.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b.Bytes()))
	if err != nil {
		f.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(plain)
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := unpack(bytes.NewReader(data))
		if err != nil {
			return
		}
		in, done := files.Mount(tree)
		defer done()
		walk(t, in, func(name string, _ fs.DirEntry) {
			if real, err := files.EvalSymlinks(name); err == nil && !strings.HasPrefix(real, in) {
				t.Errorf("%s leads to %s", name, real)
			}
		})
	})
}
