// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check/hostcheck"
	"github.com/gpurdma/gpurdma/p2p/result"
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

// The function that moves a NIC's data has the class of neither a NIC nor a bridge. A snapshot has it, since
// its way decides, too.
func TestSnapshotHasDirectData(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	tree.Functions = strings.ReplaceAll(tree.Functions, "device=0x1021", "device=0x1023") +
		"pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:04.0 class=0x080100 vendor=0x15b3 device=0x2100 driver:mlx5_ib\n"
	file, root := taken(t, tree)
	whole, copied := command("-v", "--root", root).out, command("-v", "--snapshot", file).out
	want := flat(strings.NewReplacer(root, "", "user.slice", hostcheck.SnapshotGroup).Replace(whole))
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
