// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// What is too large is refused beforehand, and --force makes the attempt. So
// that the attempt does not wake the OOM killer, the pages of a buffer that
// memory cannot hold are never touched: the range asked for has no length, and
// that is what is refused then.
//
//testbed:kernel 6.12
func TestVMForce(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	refuse := func(t *testing.T, size int64, mention string, prepare func(*run)) {
		t.Helper()
		for _, force := range []bool{false, true} {
			args := []string{"register", "--json", "--nic", "rxe0", "--gpu", "drm:vgem", "--size", strconv.FormatInt(size, 10), "--length", "0"}
			kind, errno, text := cli.KindOperation, "ENOMEM", mention
			if force {
				args = append(args, "--force")
				kind, errno, text = cli.KindRegistration, "EINVAL", "length 0"
			}
			r := command(t, args...)
			if prepare != nil {
				prepare(r)
			}
			message := checkRefusal(t, r, cli.ExitFailed, kind, errno, text)
			if !force && !strings.Contains(message, "force") {
				t.Errorf("nothing about forcing it in %q", message)
			}
		}
	}

	t.Run("MemAvailable", func(t *testing.T) {
		available, err := procfs.New("").MemAvailable()
		if err != nil {
			t.Fatal(err)
		}
		const most = 4<<30 - 1<<20 // of a dumb buffer
		size := min(available+256<<20, most)
		if size < available {
			t.Fatalf("the guest has too much memory for this test: %d bytes", available)
		}
		refuse(t, size, "MemAvailable", nil)
	})

	t.Run("cgroup", func(t *testing.T) {
		group := memoryGroup(t, 256<<20)
		join := func(r *run) { r.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())} }
		refuse(t, 300<<20, "memory.max", join)

		t.Run("heap:system", func(t *testing.T) { // its pages are not charged
			testenv.Need(t, "dma-heap", "6.12", testenv.Node("/dev/dma_heap/system"))
			args := []string{"register", "--json", "--nic", "rxe0", "--gpu", "heap:system", "--size", "300MiB"}
			r := command(t, args...)
			join(r)
			checkRefusal(t, r, cli.ExitFailed, cli.KindOperation, "ENOMEM", "memory.max")
			r = command(t, append(args, "--force")...)
			join(r)
			if status := r.do(t); status != cli.ExitOK {
				t.Errorf("forced: exit status %d\n%s%s", status, r.out.String(), r.err.String())
			}
		})
		events, err := os.ReadFile(filepath.Join(group.Name(), "memory.events"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(events), "\noom_kill 0\n") {
			t.Errorf("the OOM killer was at work:\n%s", events)
		}
	})

	t.Run("exporter", func(t *testing.T) {
		testenv.Need(t, "udmabuf", "6.12", testenv.Node("/dev/udmabuf"))
		const knob = "/sys/module/udmabuf/parameters/size_limit_mb"
		args := []string{"register", "--json", "--nic", "rxe0", "--gpu", "udmabuf", "--size", "65MiB"}
		checkRefusal(t, command(t, args...), cli.ExitFailed, cli.KindOperation, "ENOMEM", "size_limit_mb")
		checkRefusal(t, command(t, append(args, "--force")...), cli.ExitFailed, cli.KindOperation, "EINVAL", "size_limit_mb")

		// What the refusal advises helps.
		old, err := os.ReadFile(knob)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(knob, []byte("65"), 0); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.WriteFile(knob, old, 0); err != nil {
				t.Error(err)
			}
		}()
		if r := command(t, args...); r.do(t) != cli.ExitOK {
			t.Errorf("with a limit of 65 MiB: %s", r.out.String())
		}
	})
	nothingMore(t, before)
}

// memoryGroup makes a cgroup that may use as many bytes.
func memoryGroup(t *testing.T, limit int64) *os.File {
	t.Helper()
	const root = "/sys/fs/cgroup"
	dir := filepath.Join(root, "dmabuf-reg-test")
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
