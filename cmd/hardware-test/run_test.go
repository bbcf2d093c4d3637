// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// On a machine without a GPU the program names what it would have asked, passes nothing and fails
// nothing.
func TestThisMachine(t *testing.T) {
	bin, out := programs(t), filepath.Join(t.TempDir(), "out")
	p, err := predict("/")
	if err != nil || len(p.gpus) > 0 {
		t.Skipf("for a machine without a GPU: %d, %v", len(p.gpus), err)
	}
	cmd := exec.Command(filepath.Join(bin, "hardware-test"), "-out", out)
	cmd.Env = append(os.Environ(), "GPURDMA_LIBCUDA=/nonexistent/libcuda.so.1", "GPURDMA_LIBHSA=/nonexistent/libhsa.so.1", "GPURDMA_LIBZE=/nonexistent/libze.so.1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, text, stderr.Bytes())
	}
	has(t, string(text), "RESULT: nothing was compared, so this run neither passed nor failed.",
		"cuda: of each GPU, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED (124)", "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED (116)",
		"an export of 64 KiB (cuMemGetHandleForAddressRange)", "rocm: of each GPU, an export of 64 KiB (hsa_amd_portable_export_dmabuf)",
		"levelzero: of each GPU, ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF", "/nonexistent/libcuda.so.1",
		"registration of 256 KiB of each GPU with each RDMA NIC", "the machine has no GPU",
		"the tests of gpualloc/cuda", "Send this directory: "+out)
	for line := range strings.Lines(string(text)) {
		if len([]rune(strings.TrimRight(line, "\n"))) > 100 && !strings.Contains(line, out) {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
	for _, name := range []string{"report.txt", "report.json", snapshotFile} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := testenv.ReadCorpusMachine(out, machineDir)
	if err != nil || m.Origin != "hardware test" || len(m.Pairs) > 0 || len(m.GPUs) > 0 {
		t.Errorf("the folder for the corpus: %+v, %v", m, err)
	}
}

// tried is what p2pcheck --live would print of a machine: its pairs, with a proof for each that
// prove gives one.
func tried(p prediction, prove func(result.Pair) *result.Proof) result.Run {
	run := result.Run{Live: &result.Live{Untraced: "only root may trace"}}
	for _, n := range p.nics {
		run.NICs = append(run.NICs, result.NIC{Name: n.Name, PCI: n.Importer.PCI})
	}
	for _, pair := range p.pairs {
		pair.Proof = prove(pair)
		run.Pairs = append(run.Pairs, pair)
	}
	return run
}

// A machine with GPUs and NICs, in which p2pcheck, the libraries and a runtime's tests are played:
// each prediction stands beside its answer, the run fails where one is wrong, and the folder for
// the corpus has the observations.
func TestMachineWithGPUs(t *testing.T) {
	bin := t.TempDir()
	if err := os.Symlink(filepath.Join(programs(t), "convert"), filepath.Join(bin, "convert")); err != nil {
		t.Fatal(err)
	}
	p, root, at := hgx(t, nil)
	archive := filepath.Join(t.TempDir(), "archive")
	pack(t, root, archive)
	done := func(outcome, moved string) *result.Proof {
		return &result.Proof{Outcome: outcome, Why: "seen at 0000:13:00.0 by GPU-01234567-89ab-cdef-0123-456789abcdef", Steps: []result.Step{{Step: "written", Result: moved}, {Step: "read", Result: moved}}}
	}
	var direct, other result.Pair // of the first GPU, by what was predicted
	for _, pair := range p.pairs {
		if pair.GPU == at[0] && pair.Predicted == "direct" && direct.GPU == "" {
			direct = pair
		}
	}
	if direct.GPU == "" {
		t.Fatal("no pair is predicted to be direct")
	}
	other = p.pairs[slices.IndexFunc(p.pairs, func(q result.Pair) bool { return q.GPU == at[1] && q.Predicted == "direct" })]
	live := func(wrong string) result.Run {
		return tried(p, func(pair result.Pair) *result.Proof {
			switch {
			case pair.GPU == direct.GPU && pair.NIC == direct.NIC:
				return done("direct", "pass")
			case pair.GPU == other.GPU && pair.NIC == other.NIC:
				return done(wrong, "pass")
			}
			return nil
		})
	}
	for _, c := range []struct {
		name, second string // what became of the second pair
		exports      string
		tests        string
		want         string
		words        []string
	}{
		{"right", "unknown", yes, tests(map[string]string{"TestVMX": "echo '--- PASS: TestVMX (0.1s)'"}), resultAgrees, []string{"registration and transfer: agrees", "registration and transfer: fits", "cuda: 1 passed, 0 skipped, 0 failed"}},
		{"a pair is wrong", "staged", yes, tests(map[string]string{"TestVMX": "echo '--- PASS: TestVMX (0.1s)'"}), resultDisagrees, []string{"registration and transfer: DISAGREES", "predicted direct", "answered staged"}},
		{"a library is wrong", "unknown", no, "exit 0", resultDisagrees, []string{"(cuMemGetHandleForAddressRange): DISAGREES", "the tests of gpualloc/cuda"}},
		{"a test fails", "unknown", yes, tests(map[string]string{"TestVMX": "echo '--- FAIL: TestVMX (0.1s)'; exit 1"}), resultTests, []string{"1 failed (cuda.log): TestVMX"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := jsonOf(t, map[string]any{"result": live(c.second)})
			document := filepath.Join(t.TempDir(), "live.json")
			if err := os.WriteFile(document, []byte(doc), 0o600); err != nil {
				t.Fatal(err)
			}
			script(t, bin, "p2pcheck", `case $1 in
snapshot) cp "`+archive+`" "$3"; echo '{"result": {"files": 9, "unreadable_files": ["/dev/kmsg"]}}';;
*) cat "`+document+`"; exit 1;;
esac`)
			script(t, bin, "cuda.test", c.tests)
			var asked []gpu
			for i, gpuAt := range at {
				asked = append(asked, gpu{PCI: gpuAt, Name: "H100", Spec: []string{"cuda:0", "cuda:1"}[i], Answers: map[string]answer{
					keyDMABuf: {Says: yes}, keyRDMA: {Says: yes}, keyExport: {Says: c.exports, Detail: "of host " + mustHost(t)},
				}})
			}
			out := filepath.Join(t.TempDir(), "out")
			h := &hardware{bin: bin, out: out, vendors: vendors, progress: io.Discard, scrub: newScrubber(), ask: func(_ context.Context, v vendor) (answers, error) {
				if v.name != "cuda" {
					return answers{}, errors.New("crashed")
				}
				return answers{GPUs: asked}, nil
			}}
			r, err := h.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := r.text(&text); err != nil {
				t.Fatal(err)
			}
			if r.Result != c.want || r.failed() != (c.want != resultAgrees) {
				t.Errorf("%s: %s", r.Result, text.String())
			}
			has(t, text.String(), append(c.words, "1 could not be read: /dev/kmsg", "because: crashed", "because: only root may trace", "not answered", "it was not tried")...)
			for _, name := range []string{"report.txt", "report.json", liveFile, "machine/machine.json"} {
				data, err := os.ReadFile(filepath.Join(out, name))
				if err != nil || bytes.Contains(data, []byte("01234567-89ab")) {
					t.Errorf("%s has a UUID, or is not there: %v", name, err)
				}
			}
			m, err := testenv.ReadCorpusMachine(out, machineDir)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, pair := range m.Pairs {
				if pair.Answer != "" {
					got[pair.GPU+" "+pair.NIC] = pair.Answer + " " + pair.Mark
				}
			}
			want := map[string]string{direct.GPU + " " + direct.NIC: "direct observed"}
			if c.second == "staged" {
				want[other.GPU+" "+other.NIC] = "staged observed"
			}
			if len(got) != len(want) {
				t.Errorf("labels %v, want %v", got, want)
			}
			for name, answer := range want {
				if got[name] != answer {
					t.Errorf("label of %s: %q, want %q", name, got[name], answer)
				}
			}
			if len(m.GPUs) != 2 || m.GPUs[0].DMABuf != c.exports || m.GPUs[0].RDMA != yes || m.GPUs[0].Mark != "observed" {
				t.Errorf("GPUs %+v", m.GPUs)
			}
		})
	}
}

func mustHost(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// A program that takes too long is ended, and the reason is the bound. One that fails says so
// itself.
func TestRunIsBounded(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, "hangs", "exec sleep 600")
	if _, err := run(t.Context(), 20*time.Millisecond, program{path: filepath.Join(dir, "hangs")}); err == nil || !strings.Contains(err.Error(), "hangs: it took longer than 20ms") {
		t.Error(err)
	}
	script(t, dir, "fails", "echo first >&2; echo last >&2; echo out; exit 3")
	text, err := run(t.Context(), time.Minute, program{path: filepath.Join(dir, "fails")})
	if code, ok := status(err); !ok || code != 3 || string(text) != "out\n" || !strings.HasSuffix(err.Error(), ": last") {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := run(t.Context(), time.Minute, program{path: filepath.Join(dir, "absent")}); err == nil {
		t.Error("a program that is not there ran")
	}
}

// tests is a script that plays the tests of a runtime, the text for each.
func tests(each map[string]string) string {
	text := "case $2 in\n'" + testsOf + "') printf '%s\\n'"
	for _, name := range slices.Sorted(maps.Keys(each)) {
		text += " " + name
	}
	text += ";;\n*) case $3 in\n"
	for name, script := range each {
		text += "'^" + name + "$') " + script + ";;\n"
	}
	return text + "esac;;\nesac"
}

// Each test has a process of its own: the others run when one crashes. Tests that a bound ends are
// named, and those that ended before it count. The log has both outputs.
func TestRuntimesTests(t *testing.T) {
	h := &hardware{bin: t.TempDir(), out: t.TempDir()}
	const pass = "echo '--- PASS: TestVMZ (0s)'"
	for _, c := range []struct {
		name                   string
		text                   string
		passed, skipped, fails int
		late, bad              bool
		says                   string
	}{
		{"ends", tests(map[string]string{"TestVMA": "echo '--- PASS: TestVMA (0s)'; echo '    --- PASS: TestVMA/x (0s)'", "TestVMB": "echo '--- SKIP: TestVMB (0s)'"}), 1, 1, 0, false, false, ""},
		{"fails", tests(map[string]string{"TestVMA": "echo '--- FAIL: TestVMA (0s)'; exit 1", "TestVMZ": pass}), 1, 0, 1, false, true, ""},
		{"crashes", tests(map[string]string{"TestVMA": "echo SIGSEGV >&2; kill -SEGV $$", "TestVMZ": pass}), 1, 0, 1, false, true, "SIGSEGV"},
		{"ends with a status", tests(map[string]string{"TestVMA": "exit 2", "TestVMZ": pass}), 1, 0, 1, false, true, ""},
		{"lists no tests", "echo no library >&2; exit 2", 0, 0, 0, false, true, "no library"},
		{"hangs", "exec sleep 600", 0, 0, 0, true, false, ""},
		{"hangs in a test", tests(map[string]string{"TestVMA": pass, "TestVMB": "exec sleep 600", "TestVMC": pass}), 1, 0, 0, true, false, ""},
	} {
		script(t, h.bin, "cuda.test", c.text)
		limit := time.Minute
		if c.late {
			limit = time.Second
		}
		r, err := h.testRuntime(t.Context(), vendorOf(t, "cuda"), limit)
		if err != nil || r.Passed != c.passed || r.Skipped != c.skipped || len(r.Failed) != c.fails || (r.Late != "") != c.late || r.bad() != c.bad {
			t.Errorf("a program that %s: %+v, %v", c.name, r, err)
		}
		if log, err := os.ReadFile(filepath.Join(h.out, r.Log)); err != nil || !strings.Contains(string(log), c.says) {
			t.Errorf("a program that %s: log %q, %v", c.name, log, err)
		}
	}
}

// All steps with their bounds end within five minutes.
func TestLimits(t *testing.T) {
	sum := snapshotLimit + time.Duration(len(vendors))*askLimit + proveLimit + testsLimit + convertLimit
	if sum > totalLimit || totalLimit+2*grace > 5*time.Minute {
		t.Errorf("the steps take %v and all together %v", sum, totalLimit)
	}
}

// A snapshot that cannot be taken is named, and the libraries are asked all the same.
func TestWithoutSnapshot(t *testing.T) {
	bin := t.TempDir()
	script(t, bin, "p2pcheck", "echo no sysfs >&2; exit 2")
	asked := 0
	h := &hardware{bin: bin, out: filepath.Join(t.TempDir(), "out"), vendors: vendors, progress: io.Discard, ask: func(context.Context, vendor) (answers, error) {
		asked++
		return answers{Error: "no GPU"}, nil
	}}
	r, err := h.run(t.Context())
	if err != nil || asked != len(vendors) || !strings.Contains(r.Snapshot.Error, "no sysfs") || r.failed() {
		t.Errorf("%+v, %v, %d libraries asked", r, err, asked)
	}
}

// What names a machine, its user or its hardware is replaced, and addresses of PCI and versions
// stay.
func TestScrub(t *testing.T) {
	s := scrubber{}
	s.add("gpu-node-17", "HOST")
	s.add("/home/someone", "~")
	for in, want := range map[string]string{
		"GPU-01234567-89ab-cdef-0123-456789abcdef":    "GPU-UUID",
		"at a0:88:c2:00:00:01, 10.1.2.3":              "at MAC, IPV4",
		"gid fe80:0000:0000:0000:a288:c2ff:fe00:0001": "gid IPV6",
		"gid fe80::a288:c2ff:fe00:1":                  "gid IPV6",
		"guid a088:c203:0000:0001":                    "guid GUID",
		"gpu-node-17: /home/someone/x":                "HOST: ~/x",
		"enxa088c2000001":                             "DEVICE",
		"0000:1b:00.0, pci0000:15, 580.95.05, 08:12:13, 0x1234567890abcdef, 6.8.0-60-generic": "0000:1b:00.0, pci0000:15, 580.95.05, 08:12:13, 0x1234567890abcdef, 6.8.0-60-generic",
	} {
		if got := s.text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// Mistakes on the command line are named, with status 2.
func TestMistakes(t *testing.T) {
	for _, args := range [][]string{{"-runtimes", "opencl"}, {"-ask", "cuda,rocm"}, {"more"}, {"-frob"}} {
		var out, errs bytes.Buffer
		if code := command(args, &out, &errs); code != 2 || errs.Len() == 0 || out.Len() > 0 {
			t.Errorf("%q: %d, %q, %q", args, code, out.String(), errs.String())
		}
	}
}
