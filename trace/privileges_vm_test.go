// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// unprivileged makes a process run as an ordinary user that has these capabilities and no others.
func unprivileged(caps ...uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: caps}
}

// watchParent traces the process that started this one, and prints its registrations.
func watchParent() error {
	c := Config{PIDs: []int{os.Getppid()}, tests: loader.Tests{RDMAWithoutBTF: os.Getenv(childEnv) == childWatchesByKprobes}}
	tr, err := Open(c)
	if err != nil {
		return err
	}
	defer tr.Close()
	fmt.Println("watching")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for e, err := range tr.Events(ctx) {
		if err != nil {
			return err
		}
		r := &e.Record
		switch {
		case e.Kind == Registered && (r.MR == nil || r.RDMADevice == ""):
			return fmt.Errorf("registered: %+v", r)
		case e.Kind == Registered:
			fmt.Printf("lkey %d: %v by %v, importer %s of %s\n", r.MR.LKey, r.Placement.Memory, r.Placement.Proof, r.Importer.Operations, r.Importer.Module)
		case e.Kind == Refused:
			fmt.Printf("refused: %s\n", r.Explain().Stage)
		case e.Kind == Released:
			fmt.Println(r.Ended)
			return nil
		}
	}
	return errors.New("it saw no end")
}

// A user who is not root and has the documented capabilities can trace, and sees another
// process's registrations whole. If one capability is missing, the error names it, and none of
// the others.
func TestVMPrivileges(t *testing.T) {
	testenv.VM(t)
	names := map[uintptr]string{unix.CAP_BPF: "CAP_BPF", unix.CAP_PERFMON: "CAP_PERFMON", unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN"}
	every := []uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}
	for _, without := range every {
		t.Run("without "+names[without], func(t *testing.T) {
			others := slices.DeleteFunc(slices.Clone(every), func(c uintptr) bool { return c == without })
			text, status := tried(t, childOpens, unprivileged(others...))
			if status != 1 {
				t.Errorf("status %d", status)
			}
			mustHave(t, text, "lacks "+names[without], "run as root", "EPERM")
			for _, c := range others {
				if strings.Contains(text, names[c]) {
					t.Errorf("%s is there: %s", names[c], text)
				}
			}
		})
	}
	for _, what := range []string{childWatches, childWatchesByKprobes} {
		t.Run("with all of them, "+what, func(t *testing.T) {
			d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20)
			cmd := exec.Command(runnable(t))
			cmd.Env = append(os.Environ(), childEnv+"="+what)
			cmd.SysProcAttr, cmd.Stderr = unprivileged(every...), os.Stderr
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			out := bufio.NewReader(pipe)
			first, err := out.ReadString('\n')
			if err != nil || first != "watching\n" {
				t.Fatalf("%q, %v", first, err)
			}
			if _, err := d.try(b, 0, 2<<20); err != unix.EINVAL {
				t.Errorf("a range beyond the end: %v", err)
			}
			mr := d.register(t, b)
			if err := d.DestroyMR(mr.Handle); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", rest)
			stage := StageRange
			if what == childWatchesByKprobes && !testenv.AtLeast(t, "6.12") {
				stage = StageDriver // the rxe of 6.1 does without the helper, which has the arguments
			}
			evidence := "struct page"
			if runtime.GOARCH == "arm64" {
				evidence = "untranslated DMA address" // where pages are takes CAP_SYS_RAWIO there
			}
			want := fmt.Sprintf("refused: %s\nlkey %d: system memory by %s, importer ", stage, mr.LKey, evidence)
			if !strings.HasPrefix(string(rest), want) || !strings.Contains(string(rest), "rdma_rxe") && !strings.Contains(string(rest), "ib_") || !strings.HasSuffix(string(rest), "\nderegistered\n") {
				t.Errorf("it saw %q, want %q", rest, want)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("bpf forbidden", func(t *testing.T) {
		text, status := tried(t, childForbidden, nil)
		if status != 1 {
			t.Errorf("status %d", status)
		}
		mustHave(t, text, "the kernel refused bpf(2), though this process has the capabilities", "seccomp filter", "EPERM")
	})
}
