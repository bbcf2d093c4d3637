// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// asCommand makes the test binary the command itself.
const asCommand = "P2PCHECK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asContained) != "" {
		fmt.Fprintln(os.Stderr, contain())
		os.Exit(125)
	}
	if os.Getenv(asCommand) != "" {
		if file := os.Getenv(spentFile); file != "" {
			os.Exit(measured(file))
		}
		main()
	}
	// A machine is a thousand small files, and is written hundreds of times: ext4
	// takes four fifths of the tests' time looking for inodes that were not freed
	// just now.
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() && os.Getenv("TMPDIR") == "" {
		os.Setenv("TMPDIR", "/dev/shm")
	}
	testenv.Main(m)
}

// For every GPU and NIC the command gives the verdict of package p2p, and a registration ends as predicted:
// refused with that errno, or registered, with the buffer in the predicted memory. On 6.12, which is built
// without CONFIG_PCI_P2PDMA, every buffer is in system memory, and the command names that reason.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMP2PCheck(t *testing.T) {
	gpus := testenv.SoftGPUs(t, "personality=xe")
	behaviours := []string{"amdgpu", "xe", "i915", "nvidia"}
	for i, g := range gpus {
		g.Set(t, "behaviour", behaviours[i%len(behaviours)])
	}
	args := []string{"--json", "--gpu", "softgpu"}
	d, status := checked(t, nil, args...)
	seen := map[string]int{}
	m := machine.Open("")
	for _, p := range d.Pairs {
		if err := compare(m, p); err != nil {
			t.Errorf("%s -> %s: %v", p.GPU, p.NIC, err)
		}
		i := slices.IndexFunc(gpus, func(g testenv.SoftGPU) bool { return g.PCI == p.GPU })
		if i < 0 {
			t.Fatalf("%s is no software GPU", p.GPU)
		}
		what, err := register(t, gpus[i], p.NIC)
		if err != nil {
			t.Fatalf("%s -> %s: %v", p.GPU, p.NIC, err)
		}
		want := p.Registration.Outcome
		if p.Registration.Errno != nil {
			want += " " + p.Registration.Errno.Name
		}
		if what != want {
			t.Errorf("%s -> %s: predicted %s, and it is %s: %v", p.GPU, p.NIC, want, what, p.Why)
		}
		seen[p.Outcome]++
		old := p.Outcome == "staged" && !strings.HasPrefix(behaviours[i%len(behaviours)], "i915")
		if !testenv.AtLeast(t, "7.0") && old && !slices.ContainsFunc(p.Why, func(why string) bool { return strings.Contains(why, "built without CONFIG_PCI_P2PDMA") }) {
			t.Errorf("%s -> %s is staged for another reason: %v", p.GPU, p.NIC, p.Why)
		}
	}
	t.Logf("%d pairs: %v", len(d.Pairs), seen)
	if len(d.NICs) < 5 || len(d.Pairs) != len(gpus)*len(d.NICs) || status != cli.ExitFailed || seen["staged"] == 0 || seen["refused"] == 0 || seen["unknown"] != 0 {
		t.Errorf("%d NICs, %d pairs, status %d: %v", len(d.NICs), len(d.Pairs), status, seen)
	}
	t.Run("text", func(t *testing.T) { shown(t) })
	t.Run("unprivileged", func(t *testing.T) { unprivileged(t, d, args) })
	t.Run("contained", func(t *testing.T) { contained(t, d, args) })
}

// checked runs the command as a process of its own.
func checked(t *testing.T, as *syscall.Credential, args ...string) (result.Run, int) {
	t.Helper()
	return ran(t, &syscall.SysProcAttr{Credential: as}, nil, args...)
}

// ran runs the command as a process with these attributes.
func ran(t *testing.T, attr *syscall.SysProcAttr, env []string, args ...string) (result.Run, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asCommand+"=1"), env...)
	cmd.SysProcAttr = attr
	cmd.Dir = "/"
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var d struct {
		Status int `json:"exit_status"`
		Result result.Run
	}
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.Status != cmd.ProcessState.ExitCode() {
		t.Fatalf("%v, status %d and %d: %s%s", err, d.Status, cmd.ProcessState.ExitCode(), &out, &stderr)
	}
	return d.Result, d.Status
}

// compare asks the package itself.
func compare(m *machine.Machine, p result.Pair) error {
	a, err := pciaddr.Parse(p.GPU)
	if err != nil {
		return err
	}
	e, err1 := drivers.ExporterOf(m, a)
	i, err2 := drivers.ImporterOf(m, p.NIC)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	want := drivers.Predict(m, e, i)
	if r := p.Registration; r.Outcome != want.Outcome.String() || !slices.Equal(r.Why, want.Why) || p.Decision.Type != want.Decision.Type.String() || (p.Remedy == nil) != (p.Outcome == chain.Direct.String()) {
		return fmt.Errorf("the command says %+v, p2p %v", p, want)
	}
	return nil
}

// register says what becomes of a registration: "direct", "staged" or "refused
// ERRNO".
func register(t *testing.T, g testenv.SoftGPU, nic string) (what string, err error) {
	alloc, err := gpualloc.Open("drm:"+g.PCI+"/vram", gpualloc.Env{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, alloc.Close()) }()
	const size = 64 << 10
	buf, err := alloc.Alloc(context.Background(), size, gpualloc.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, buf.Close()) }()
	dev, err := ibvfd.Open(nic)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	pd, err := dev.AllocPD()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()
	b := buf.Segments()[0].Buf
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: b, Length: size, Access: ibvfd.AccessLocalWrite})
	var refusal *ibvfd.RegError
	if errors.As(err, &refusal) {
		var e unix.Errno
		if !errors.As(err, &e) {
			return "", err
		}
		return "refused " + errno.Name(e), nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	switch place := g.Place(t, b.Inode()); place {
	case "vram":
		return "direct", nil
	case "system":
		return "staged", nil
	default:
		return "", fmt.Errorf("the buffer is in %q", place)
	}
}

// shown looks at what a person sees.
func shown(t *testing.T) {
	var out, stderr bytes.Buffer
	a := &app{stdout: &out, stderr: &stderr}
	if status := a.run([]string{"--gpu", "softgpu"}); status != cli.ExitFailed || stderr.Len() > 0 {
		t.Errorf("status %d: %s", status, &stderr)
	}
	t.Logf("p2pcheck --gpu softgpu\n%s", &out)
	for _, want := range []string{"STAGED", "REFUSED with ENOTSUPP by attach", "rxe-soft", "change: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not there", want)
		}
	}
	out.Reset()
	if status := a.run([]string{"topo", "--gpu", "softgpu"}); status != cli.ExitOK || stderr.Len() > 0 {
		t.Errorf("topo: status %d: %s", status, &stderr)
	}
	t.Logf("p2pcheck topo --gpu softgpu\n%s", &out)
	for _, want := range []string{"downstream port", "NIC rxe0", "PIX", "on no PCI bus: rxe-soft"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("topo: %q is not there", want)
		}
	}
}

// unprivileged compares with the result of a user to whom the kernel shows only the beginning of the
// configuration space: some pairs are unknown, and all others are the same.
func unprivileged(t *testing.T, whole result.Run, args []string) {
	d, status := checked(t, &syscall.Credential{Uid: 65534, Gid: 65534}, args...)
	if len(d.Pairs) != len(whole.Pairs) || status == cli.ExitOK {
		t.Fatalf("%d pairs, with root %d; status %d", len(d.Pairs), len(whole.Pairs), status)
	}
	for i, p := range d.Pairs {
		if p.Outcome != "unknown" && p.Outcome != whole.Pairs[i].Outcome {
			t.Errorf("%s -> %s: %s, and with root %s", p.GPU, p.NIC, p.Outcome, whole.Pairs[i].Outcome)
		}
	}
}
