// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/options"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/register"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A buffer that is too large is refused beforehand, and --force makes the attempt. So
// that the attempt does not start the OOM killer, the pages of a buffer that
// memory cannot hold are never touched: the range asked for has length 0, which
// is then refused.
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

		// The refusal's remedy helps.
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

// So many registrations that what is kept of them does not fit are refused
// beforehand, and what turns out not to fit while they are made ends them.
//
//testbed:kernel 6.12
func TestVMCount(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	const spec, nic = "drm:vgem", "rxe0"
	for _, c := range []struct{ size, count, mention string }{
		{"64MiB", "30000", "MemAvailable leaves"},
		{"4KiB", "100000000", "100000000 MRs, where the device has"},
	} {
		args := []string{"register", "--json", "--nic", nic, "--gpu", spec, "--size", c.size, "--count", c.count}
		if message := checkRefusal(t, command(t, args...), cli.ExitFailed, cli.KindOperation, "", c.mention); !strings.Contains(message, "lower --count") {
			t.Errorf("nothing about a lower count in %q", message)
		}
	}

	t.Run("forced", func(t *testing.T) {
		r := command(t, "register", "--nic", nic, "--gpu", spec, "--size", "64MiB", "--count", "30000", "--force")
		r.begin(t)
		for range 100 * testenv.Slow() {
			if now := leftBehind(t); now.mrs != before.mrs {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := r.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if status := r.status(t); status != cli.ExitInterrupted {
			t.Errorf("exit status %d: %s%s", status, &r.out, &r.err)
		}
	})

	t.Run("while registering", func(t *testing.T) {
		src, err := buffer.Allocate(t.Context(), spec, 4<<10, false)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := nics.Open(nic)
		if err != nil {
			t.Fatal(err)
		}
		pd, err := dev.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		const count = 2500
		space := &register.Room{NIC: nic, MRs: 1, Length: 4 << 10, Count: count}
		space.Env = memoryOf(t, space.Cost(1200)) // as if another program had taken the rest after the first look
		r := &register.Result{NIC: nic, Length: 4 << 10}
		regions, err := r.Register(t.Context(), cli.NewProgress(os.Stderr), register.Params{Access: options.DefaultAccess, Count: count}, src, pd, space)
		if len(regions) != register.LookEvery || !errors.Is(err, failure.ErrLimit) || !strings.HasPrefix(err.Error(), "registration 1025 of 2500: ") {
			t.Errorf("%d registrations, %v; want the look at the memory to end them", len(regions), err)
		}
		var closed error
		for _, g := range regions {
			closed = errors.Join(closed, g.Close())
		}
		if err := errors.Join(closed, pd.Close(), dev.Close(), src.Close()); err != nil {
			t.Error(err)
		}
	})
	nothingMore(t, before)
}

// memoryOf makes a machine that has as many bytes left and no cgroup.
func memoryOf(t *testing.T, bytes int64) gpualloc.Env {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "meminfo"), fmt.Appendf(nil, "MemAvailable: %d kB\n", bytes>>10), 0o600); err != nil {
		t.Fatal(err)
	}
	return gpualloc.Env{Proc: dir, Sys: dir}
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
