// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/proofs"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/placement"
)

// A prediction for a kernel without CONFIG_PCI_P2PDMA is what becomes of pairs on
// 6.12, which is such a kernel: staged and refused. On 7.2 the proof contradicts
// it where the pair is direct, and only there.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMLive(t *testing.T) {
	testenv.VM(t)
	gpus := testenv.SoftGPUs(t, "personality=amdgpu")
	behaviours := []string{"amdgpu", "nvidia", "i915"}
	for i, g := range gpus {
		g.Set(t, "behaviour", behaviours[i%len(behaviours)])
	}
	before := resources(t)
	defer func() {
		for kind, n := range resources(t) {
			if n != before[kind] {
				t.Errorf("%d of %s, before there were %d", n, kind, before[kind])
			}
		}
		for _, g := range gpus {
			if left := g.Buffers(t); len(left) > 0 {
				t.Errorf("%s still has %v", g.Name, left)
			}
		}
	}()
	p2pdma := testenv.AtLeast(t, "7.0")

	t.Run("proofs", func(t *testing.T) {
		config := t.TempDir() + "/config"
		if err := os.WriteFile(config, []byte("CONFIG_PCI=y\nCONFIG_DMA_SHARED_BUFFER=y\n# CONFIG_PCI_P2PDMA is not set\n"+testenv.ConfigEnd), 0o600); err != nil {
			t.Fatal(err)
		}
		d, status := checked(t, nil, "--live", "--json", "--skip", "KRN,ENV,NET,LIB,PCIE", "--config", config, "--gpu", gpus[0].PCI+","+gpus[1].PCI, "--nic", "rxe0,rxe1,rxe-soft")
		seen := map[string]int{}
		for _, p := range d.Pairs {
			q := p.Proof
			if q == nil || len(q.Steps) != 9 || q.LogError != "" || len(q.Links) > 0 {
				t.Fatalf("%s -> %s: %+v", p.GPU, p.NIC, q)
			}
			seen[q.Outcome]++
			// The kernel that the configuration is of would make all of amdgpu's staged.
			want := placement.Yes
			if q.Outcome == "direct" {
				want = placement.No
			}
			if q.Agrees != want || want == placement.Yes && q.Outcome != p.Outcome {
				t.Errorf("%s -> %s: predicted %s %v; %+v", p.GPU, p.NIC, p.Outcome, p.Why, q)
			}
			for _, s := range q.Steps {
				if want := wanted(q.Outcome, s.Step); s.Result != want {
					t.Errorf("%s -> %s, %s: %s: %s %s, want %s", p.GPU, p.NIC, q.Outcome, s.Step, s.Result, s.Detail, want)
				}
			}
		}
		t.Logf("%v, %+v", seen, d.Live)
		if d.Live.Tried != 6 || d.Live.Untraced != "" || d.Live.Contradicted != seen["direct"] || status != cli.ExitFailed || seen["staged"] == 0 || seen["refused"] == 0 || (seen["direct"] > 0) != p2pdma {
			t.Errorf("status %d: %v, %+v", status, seen, d.Live)
		}
		if !p2pdma {
			return
		}
		var b strings.Builder
		if err := render.Text(&b, render.Style{}, d); err != nil {
			t.Fatal(err)
		}
		out := b.String()
		t.Log(out)
		if at := strings.Index(out, "THE PROOF CONTRADICTS THE PREDICTION\n"+gpus[0].PCI+" -> rxe"); at < 0 || at > strings.Index(out, "GPU  ") {
			t.Error("it is not told before all else")
		}
		for _, want := range []string{"predicted: STAGED", "proven:    direct", "FAIL     ACT-PREDICTION"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not there", want)
			}
		}
	})

	if !p2pdma {
		return // the rest is the same there
	}
	// A later run of a user without privileges uses the kept proofs.
	t.Run("kept", func(t *testing.T) {
		file := t.TempDir() + "/proofs"
		for _, dir := range []string{filepath.Dir(filepath.Dir(file)), filepath.Dir(file)} {
			if err := os.Chmod(dir, 0o755); err != nil { // lets an unprivileged user read the file
				t.Fatal(err)
			}
		}
		few := []string{"--json", "--skip", "all", "--gpu", gpus[0].PCI, "--nic", "rxe0,rxe1", "--proofs", file}
		proven, _ := checked(t, nil, append(few, "--live")...)
		for _, as := range []*syscall.Credential{nil, {Uid: 65534, Gid: 65534}} {
			later, _ := checked(t, as, few...)
			for i, p := range later.Pairs {
				if q := proven.Pairs[i]; p.Outcome != q.Outcome || p.Outcome == "unknown" || p.Proof != nil || p.Links[chain.Proof].State == "unknown" {
					t.Errorf("%s -> %s: %s; proven %s: %+v", p.GPU, p.NIC, p.Outcome, q.Outcome, p.Links[chain.Proof])
				}
			}
		}
		// Memory of another class has proofs of its own.
		larger, _ := checked(t, nil, append(few, "--live", "--size", "4MiB")...)
		for _, p := range larger.Pairs {
			if p.Proof == nil || p.Proof.Size != 4<<20 || p.Proof.Memory != "vram" {
				t.Errorf("%s -> %s: %+v", p.GPU, p.NIC, p.Proof)
			}
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		kept, err := proofs.Read(f)
		if err != nil || len(kept.Records) != 2*len(proven.Pairs) {
			t.Fatalf("%v: %+v", err, kept)
		}
		for _, r := range kept.Records {
			if r.LastLine == nil || *r.LastLine == 0 || r.Circumstances["/sys/module/softgpu/notes/.note.gnu.build-id"] == "" {
				t.Errorf("%s -> %s: last line %v, %v", r.GPU, r.NIC, r.LastLine, r.Circumstances)
			}
		}
	})

	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	// A user without the privilege to trace moves bytes, and gets no proof of their place. The error of
	// a user that cannot open the devices says why.
	t.Run("untraced", func(t *testing.T) {
		for _, mode := range []os.FileMode{0o666, 0o600} {
			share(t, mode)
			d, status := checked(t, nobody, "--live", "--json", "--skip", "all", "--gpu", gpus[2].PCI, "--nic", "rxe0")
			q := d.Pairs[0].Proof
			if q == nil || q.Outcome != "unknown" || d.Live.Untraced == "" || status == cli.ExitOK {
				t.Fatalf("status %d: %+v", status, d.Live)
			}
			results := map[string]string{}
			for _, s := range q.Steps {
				results[s.Step] = s.Result
			}
			t.Logf("mode %v: %v: %s", mode, results, q.Why)
			moved := mode == 0o666
			if (results["written"] == "pass") != moved || (results["read"] == "pass") != moved || results["placed"] == "pass" || moved && results["placed"] != "unknown" || !moved && results["registered"] == "pass" {
				t.Errorf("mode %v: %v", mode, results)
			}
		}
	})

	t.Run("interrupted", func(t *testing.T) {
		share(t, 0o666)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "--live", "--json")
		cmd.Env = append(os.Environ(), asCommand+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody} // without a trace it begins sooner
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Until it has something that could be left.
		for deadline := time.Now().Add(testenv.Limit(5 * time.Minute)); resources(t)["mr"] == before["mr"]; {
			if time.Now().After(deadline) {
				t.Fatal("it registers nothing")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if status := cmd.ProcessState.ExitCode(); status != cli.ExitInterrupted || !strings.Contains(out.String(), `"interrupted"`) {
			t.Errorf("status %d: %s", status, &stderr)
		}
	})
}

// wanted is the result of a step of a proof with an outcome.
func wanted(outcome, step string) string {
	switch {
	case step == "allocated", step == "exported", step == "released", outcome == "direct":
		return "pass"
	case outcome == "refused" && step == "registered", outcome == "staged" && step == "placed":
		return "fail"
	case outcome == "refused", outcome == "staged" && step == "route":
		return "skip"
	}
	return "pass"
}

// resources counts what is on all RDMA devices.
func resources(t *testing.T) map[string]uint64 {
	t.Helper()
	c, err := rdmanl.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	devices, err := c.Devices()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, d := range devices {
		s, err := c.Summary(d.Name)
		if err != nil {
			t.Fatal(err)
		}
		for kind, n := range s {
			out[kind] += n
		}
	}
	return out
}

// share gives the devices' files a mode, and back what they had.
func share(t *testing.T, mode os.FileMode) {
	t.Helper()
	for _, dir := range []string{"/dev/infiniband", "/dev/dri"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			st, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			if st.IsDir() {
				continue
			}
			name := dir + "/" + e.Name()
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.Chmod(name, st.Mode().Perm()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
