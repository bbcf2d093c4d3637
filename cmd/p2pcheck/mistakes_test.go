// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A mistake on the command line ends with the status of one, and the error names the right value.
func TestMistakes(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	dir := t.TempDir()
	text, large := filepath.Join(dir, "text"), filepath.Join(dir, "large")
	if err := os.WriteFile(text, []byte("root:x:0:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		// An empty value never means this machine, or all devices.
		{[]string{"--snapshot", ""}, "--snapshot needs a file"},
		{[]string{"--baseline="}, "--baseline needs a file"},
		{[]string{"--config", ""}, "--config needs a file"},
		{[]string{"--root", ""}, "--root needs a directory"},
		{[]string{"--sysfs", ""}, "--sysfs needs a directory"},
		{[]string{"--proc", ""}, "--proc needs a directory"},
		{[]string{"--pid", ""}, "--pid needs a process"},
		{[]string{"--gpu", ""}, "--gpu needs a GPU"},
		{[]string{"--nic", "mlx5_0,,"}, "--nic needs a NIC"},
		{[]string{"--kernel", ""}, "--kernel needs a release"},
		{[]string{"--skip", ""}, "--skip needs a check"},
		{[]string{"--skip", "NET,,KRN"}, "--skip needs a check"},
		{[]string{"serve", "--skip", ""}, "--skip needs a check"},
		{[]string{"-o", ""}, "--output needs a file"},
		{[]string{"topo", "--root", ""}, "--root needs a directory"},
		{[]string{"serve", "--listen", ""}, "--listen needs an address"},
		{[]string{"serve", "--nfd", ""}, "--nfd needs a file"},

		{[]string{"--root", root, "--config", "/dev/zero"}, "no regular file"},
		{[]string{"--root", root, "--config", dir}, "no regular file"},
		{[]string{"--root", root, "--config", large}, "larger than 16 MiB"},
		{[]string{"--root", root, "--config", text}, text + " is not the configuration of a kernel"},
		{[]string{"--root", root, "--kernel", "banana"}, "no release"},

		{[]string{"--root", filepath.Join(root, "sys")}, "give --root " + root},
		{[]string{"--root", dir}, "--root needs a directory that has sys in it"},
		{[]string{"--proc", filepath.Join(root, "proc")}, "--proc needs --sysfs"},
		{[]string{"--sysfs", root}, "is no sysfs, and has one below it: give --root " + root},
		{[]string{"--sysfs", dir}, "is no sysfs: it has none of bus/pci/devices, class, devices"},
		{[]string{"topo", "--sysfs", "/proc", "--proc", "/proc"}, "is no sysfs"},
		{[]string{"topo", "--sysfs", filepath.Join(root, "proc"), "--proc", filepath.Join(root, "proc")}, "is no sysfs"},
		{[]string{"--root", root, "--timeout", "5s"}, "add --live"},
		{[]string{"--root", root, "--timeout", "-5s"}, "below 0"},
		{[]string{"--live", "--timeout", "0s"}, "a pair needs time"},
		{[]string{"--root", root, "--size", "1GiB"}, "add --live"},
		{[]string{"--live", "--size", "0"}, "a proof needs memory"},
		{[]string{"--live", "--size", "much"}, "is not a number of bytes"},
		{[]string{"--live", "--size", "0xffffffffffffffff"}, "no GPU has so much memory"},
		{[]string{"topo", "--svg", "--json", "--root", root}, "one or the other"},
		{[]string{"snapshot", "-o", "x", "y"}, "the archive is one file"},
		{[]string{"snapshot", "-", "--json", "--root", root}, "--json"},
		{[]string{"diff", "-", "-"}, "one file"},
		{[]string{"report", dir, "--html", "-o", "x"}, "--html has no value: -o looks like another flag; a file of that name is ./-o"},
		{[]string{"--root", root, "--baseline", "--json"}, "--baseline has no value: --json looks like"},
		{[]string{"--root", root, "--config", "-v"}, "--config has no value: -v"},
		{[]string{"--root", root, "-o", "--json"}, "--output has no value: --json"},
		{[]string{"--snapshot", "-", "--baseline", "-"}, "can read the standard input"},

		{[]string{"explain", "NOPE"}, "The families of checks are KRN, "},
		{[]string{"explain", "NET", "NOPE"}, `"NOPE"`},
		{[]string{"explain", "net-gdi"}, "did you mean NET-GID?"},
		{[]string{"explain", "memlock"}, "did you mean LIM-MEMLOCK?"},
		{[]string{"explain", ""}, "empty name"},
		{[]string{"--root", root, "--skip", "NETT"}, "did you mean NET"},

		{[]string{"completion"}, "bash, fish, powershell, zsh"},
		{[]string{"completion", "foo"}, `no shell is called "foo"`},
		{[]string{"help", "frob"}, `no command is called "frob"`},
		{[]string{"help", "serve", "frob"}, `no command is called "serve frob"`},

		{[]string{"serve", "--skip", "FOO", "--root", root}, `"FOO"`},
		{[]string{"serve", "--snapshot", filepath.Join(dir, "none")}, "none"},
		{[]string{"serve", "--snapshot", "-"}, "name a file"},
		{[]string{"serve", "--every", "1ns"}, "--every 1ns"},
		{[]string{"serve", "--root", root, "--nfd", filepath.Join(dir, "none", "labels")}, "make its directory, or give --nfd a path"},
		{[]string{"serve", "--root", root, "--nfd", dir}, "give --nfd the path of a file"},
		{[]string{"serve", "--json", "--root", root}, "serve has no --json"},
	} {
		if c.args[0] == "serve" {
			c.args = append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args[1:]...)
		}
		r := command(c.args...)
		if r.status != cli.ExitUsage || !strings.Contains(r.out+r.err, c.says) {
			t.Errorf("%q: %+v", c.args, r)
		}
		if len(r.err) > 600 {
			t.Errorf("%q: %d letters", c.args, len(r.err))
		}
	}
}

// Help that is asked for is none.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"help", "serve"}, {"help", "completion", "zsh"}, {"--help"}, {"completion", "--help"}, {"completion", "fish"}, {"--version"}} {
		if r := command(args...); r.status != cli.ExitOK || r.out == "" || r.err != "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"--help"}, {"help"}, {"--version"}, {"completion", "bash"}} {
		var said strings.Builder
		a := &app{stdout: full, stderr: &said}
		if status := a.run(args); status != cli.ExitUsage || strings.Count(said.String(), "no space left") != 1 {
			t.Errorf("%q: status %d, %s", args, status, &said)
		}
	}
}

// Names are the same in capitals and not.
func TestNamesInCapitals(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	want := command("--root", root, "--skip", "NET,KRN-BTF", "--gpu", "nvidia", "--nic", "mlx5_0")
	if r := command("--root", root, "--skip", "net,krn-Btf", "--gpu", "NVIDIA", "--nic", "MLX5_0"); r != want || r.status == cli.ExitUsage {
		t.Errorf("%+v", r)
	}
	if r := command("--root", root, "--skip", "ALL"); strings.Contains(r.out, "FAIL") || r.status == cli.ExitUsage {
		t.Errorf("%+v", r)
	}
}

// stdin makes a file the standard input.
func stdin(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdin
	os.Stdin = f
	t.Cleanup(func() { os.Stdin = was })
}

// "-" is the standard output of snapshot, and elsewhere the standard input.
func TestStandardStreams(t *testing.T) {
	file, root := taken(t, testenv.Machines["small-hgx"]())
	t.Chdir(t.TempDir())
	r := command("snapshot", "-", "--root", root)
	if whole, err := os.ReadFile(file); err != nil || r.out != string(whole) || r.status != cli.ExitOK || !strings.HasPrefix(r.err, "standard output: ") {
		t.Errorf("status %d: %s, %v", r.status, r.err, err)
	}
	if names, err := os.ReadDir("."); err != nil || len(names) > 0 {
		t.Error(names, err)
	}
	stdin(t, file)
	if got, want := command("--snapshot", "-"), command("--snapshot", file); got != want {
		t.Errorf("%+v", got)
	}
	run := filepath.Join(t.TempDir(), "run.json")
	command("--json", "--root", root, "-o", run)
	stdin(t, run)
	if got := command("diff", run, "-"); got.status != cli.ExitOK || !strings.HasPrefix(got.out, "0 differences") {
		t.Errorf("%+v", got)
	}
	stdin(t, run)
	if got := command("--root", root, "--baseline", "-"); got.status != command("--root", root).status || got.err != "" {
		t.Errorf("%+v", got)
	}
}

// The errors for files that are no snapshots, or damaged ones.
func TestRefusedSnapshots(t *testing.T) {
	file, _ := taken(t, testenv.Machines["small-mi300"]())
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(whole)
	broken[len(broken)-6]++
	dumped, err := json.Marshal(testenv.RDMATopoDump(t, testenv.Machines["small-mi300"]().Write(t)))
	if err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string][]byte{
		"cut off": whole[:len(whole)/2],
		"damaged": broken,
		"not an archive that `p2pcheck snapshot` wrote: entry 0":                                                []byte(strings.Repeat("no archive\n", 100)),
		"not an archive that `p2pcheck snapshot` wrote, and no dump of rdma_topo: there is more behind its end": append(dumped, dumped...),
	} {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := command("--snapshot", name); r.status != cli.ExitUsage || !strings.HasPrefix(r.err, "p2pcheck: --snapshot: "+name+": "+want) {
			t.Errorf("%s: %+v", want, r)
		}
	}
}

// Metrics count what could not be read, and serve says why, in the words that a run has: once, until they change.
func TestMetricsOfErrors(t *testing.T) {
	file, _ := taken(t, testenv.Machines["small-hgx"]())
	var says strings.Builder
	a := &app{stdout: io.Discard, stderr: &says, gpu: []string{"nope"}, snapshotFile: file, told: &told{}}
	const want = `no GPU here is called "nope"; there is `
	for range 3 {
		got := a.answer(t.Context())
		if text := written(t, got); got.Err == nil || !strings.Contains(text, "p2pcheck_errors{kind=\"unavailable\"} 1\n") || strings.Contains(text, "nope") {
			t.Errorf("%v: %s", got.Err, text)
		}
		if strings.Count(says.String(), want) != 1 {
			t.Errorf("%s", &says)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := says.String()
	a.gpu = []string{"other"}
	if got := a.answer(ended); got.Err == nil || says.String() != before {
		t.Errorf("of a look that nobody waited for: %v\n%s", got.Err, &says)
	}
	a.gpu = []string{"nope"}
	// The snapshot is gone: an error that would have ended serve at its start.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	a.answer(t.Context())
	a.answer(t.Context())
	if strings.Count(says.String(), "no such file") != 1 || strings.Count(says.String(), want) != 1 {
		t.Errorf("%s", &says)
	}
}

// An error points to --help for a mistake on the command line, and not for a fault of a file or an address.
func TestHintIsOfMistakes(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none, inFile := filepath.Join(root, "none"), filepath.Join(text, "labels")
	for _, c := range []struct {
		args []string
		hint string // the command whose help the error points to
	}{
		{[]string{"--frob"}, "p2pcheck"},
		{[]string{"frob"}, "p2pcheck"},
		{[]string{"--skip", "NETT", "--root", root}, "p2pcheck"},
		{[]string{"--gpu", ""}, "p2pcheck"},
		{[]string{"serve", "--listen", "9838", "--root", root}, "p2pcheck serve"},
		{[]string{"--kernel", "banana", "--root", root}, "p2pcheck"},
		{[]string{"why"}, "p2pcheck why"},
		{[]string{"why", "--frob"}, "p2pcheck why"},
		{[]string{"why", "--root", root, "--skip", "all", "x", "y"}, "p2pcheck why"},
		{[]string{"explain", "NOPE"}, "p2pcheck explain"},
		{[]string{"report"}, "p2pcheck report"},
		{[]string{"diff", "x"}, "p2pcheck diff"},
		{[]string{"topo", "x"}, "p2pcheck topo"},

		{[]string{"--root", none}, ""},
		{[]string{"--root", root, "--baseline", none}, ""},
		{[]string{"--root", root, "--baseline", text}, ""},
		{[]string{"diff", none, text}, ""},
		{[]string{"report", none}, ""},
		{[]string{"--snapshot", none}, ""},
		{[]string{"--snapshot", text}, ""},
		{[]string{"snapshot", inFile, "--root", root}, ""},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--root", root, "--nfd", inFile}, ""},
		{[]string{"serve", "--listen", "192.0.2.1:9838", "--root", root}, ""}, // no machine has this address
	} {
		want := ""
		if c.hint != "" {
			want = "See `" + c.hint + " --help`.\n"
		}
		if r := command(c.args...); r.status != cli.ExitUsage || !strings.HasSuffix(r.err, want) || strings.Contains(r.err, "See `") != (want != "") {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
}
