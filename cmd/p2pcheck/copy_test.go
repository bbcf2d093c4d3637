// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// inCopies is what docs/reference/p2pcheck/copies.md says a copy has.
var inCopies = []string{
	"sys/bus/pci", "sys/devices", "sys/module", "sys/kernel/iommu_groups", "sys/class/infiniband", "sys/class/infiniband_verbs", "sys/class/drm", "sys/class/net",
	"proc/sys/kernel/osrelease", "proc/cpuinfo", "boot",
}

// partial is a copy of a machine that has these alone.
func partial(t *testing.T, tree testenv.Tree, kept ...string) string {
	t.Helper()
	whole, copied := tree.Write(t), t.TempDir()
	for _, name := range kept {
		from := filepath.Join(whole, name)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(whole, file)
			if err != nil {
				return err
			}
			to := filepath.Join(copied, rel)
			switch {
			case e.IsDir():
				return os.MkdirAll(to, 0o700)
			case e.Type()&fs.ModeSymlink != 0:
				target, err := os.Readlink(file)
				return errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.Symlink(target, to))
			}
			text, err := os.ReadFile(file)
			return errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

// found are the checks of a run, by result.
func found(t *testing.T, args ...string) (map[string][]string, outcome) {
	t.Helper()
	r := command(append(args, "--json")...)
	var d struct{ Result result.Run }
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	out := map[string][]string{}
	for _, f := range d.Result.Checks {
		out[f.Result] = append(out[f.Result], f.ID)
	}
	return out, r
}

// On a copy of a healthy machine no check fails, and no check passes that does not pass on the machine
// itself. The same holds for an incomplete copy.
func TestCopies(t *testing.T) {
	for _, name := range []string{"small-hgx", "small-mi300"} {
		sick0 := testenv.Machines[name]
		// Things that are wrong, in files that a copy may lack.
		sick := sick0()
		for file, text := range map[string]string{"proc/sys/kernel/numa_balancing": "1\n", "proc/self/environ": "NCCL_NET_GDR_LEVEL=LOC\x00", "sys/kernel/security/lockdown": "none [integrity]\n"} {
			sick.Files[file] = text
		}
		of, _ := found(t, "--root", sick.Write(t))
		passes := strings.Join(of["pass"], " ") + " "
		for _, kept := range [][]string{inCopies, {"sys/bus/pci", "sys/devices", "sys/module", "sys/class/infiniband", "proc/sys/kernel/osrelease", "proc/cpuinfo", "boot"}} {
			in, r := found(t, "--root", partial(t, sick, kept...))
			if len(in["fail"]) > 0 || r.status != cli.ExitUnavailable {
				t.Errorf("%s: status %d, %q fail", name, r.status, in["fail"])
			}
			for _, id := range in["pass"] {
				if !strings.Contains(passes, id+" ") {
					t.Errorf("%s: %s passes in the copy alone", name, id)
				}
			}
			if strings.Contains(r.out, "sudo p2pcheck") {
				t.Errorf("%s: root is asked for, of a copy", name)
			}
		}
	}
}

// No check fails for a dump, which has no drivers and no kernel. No text shows the mark of a missing file.
func TestDumpFailsNothing(t *testing.T) {
	for _, name := range []string{"small-hgx", "small-mi300", "wrong-socket", "xe"} {
		file := dumpFile(t, testenv.RDMATopoDump(t, testenv.Machines[name]().Write(t)))
		in, r := found(t, "--snapshot", file)
		if len(in["fail"])+len(in["warn"]) > 0 && name != "xe" && name != "wrong-socket" || len(in["fail"]) > 0 || r.status != cli.ExitUnavailable {
			t.Errorf("%s: status %d, %q fail, %q warn", name, r.status, in["fail"], in["warn"])
		}
		for _, args := range [][]string{{"-v"}, {"topo"}, {"--json"}, {"topo", "--json"}} {
			r := command(append(args, "--snapshot", file)...)
			for _, odd := range []string{"symbolic link", "sudo", "not in the dump", `"?\" may`, "? of", "?, whose"} {
				if i := strings.Index(r.out+r.err, odd); i >= 0 {
					t.Errorf("%s %q: %q", name, args, (r.out + r.err)[max(0, i-80):i+40])
				}
			}
		}
	}
}

// The remedy for a dump without drivers is a snapshot: no flag adds the drivers to a dump. No message
// reads as if this machine lacked a file.
func TestDumpProposesASnapshot(t *testing.T) {
	root := testenv.Machines["small-mi300"]().Write(t)
	file := dumpFile(t, testenv.RDMATopoDump(t, root))
	for _, args := range [][]string{nil, {"--kernel", "7.2.1"}, {"--kernel", "7.2.1", "--config", filepath.Join(root, "boot/config-7.2.12+deb13-amd64")}} {
		r := command(append([]string{"--snapshot", file}, args...)...)
		if !strings.Contains(r.out, "          p2pcheck snapshot FILE\n") {
			t.Errorf("%q: %s", args, r.out)
		}
		for _, odd := range []string{"p2pcheck --kernel", "p2pcheck --config", "p2pcheck --live", "/proc/kallsyms"} {
			if strings.Contains(r.out, odd) {
				t.Errorf("%q: %s is in it: %s", args, odd, r.out)
			}
		}
	}
}
