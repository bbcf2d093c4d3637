// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// childEnv makes the test binary a program that registers a buffer and says so.
// Its value is what it does then.
const childEnv = "GPURDMA_TRACE_TEST_CHILD"

const (
	childWaits  = "waits"  // to be killed
	childHanded = "handed" // the buffer is descriptor 3, from the parent; ends when stdin does
	childForks  = "forks"  // starts a process that inherits the RDMA device, and ends
	childOpens  = "opens"  // says why tracing cannot work
	childBlind  = "blind"  // the same, in a view of sysfs without type information
	childInside = "inside" // traces itself in a container
	childCrowd  = "crowd"  // registers many, to be killed
	childHeaded = "headed" // registers, ends its first thread, and registers by another

	childForbidden        = "forbidden" // as childOpens, and may not call bpf(2)
	childWatches          = "watches"   // traces its parent
	childWatchesByKprobes = "watches by kprobes"
)

// The first thread is main's, so that it can end it.
func init() {
	if os.Getenv(childEnv) == childHeaded {
		runtime.LockOSThread()
	}
}

func child() {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	switch os.Getenv(childEnv) {
	case childBlind:
		fail(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		fail(unix.Mount("none", "/sys/kernel/btf", "tmpfs", 0, ""))
		fallthrough
	case childOpens, childForbidden:
		if os.Getenv(childEnv) == childForbidden {
			fail(forbidden())
		}
		tr, err := Open(Config{NoInventory: true})
		fail(err)
		fail(tr.Close())
		fmt.Println("tracing works")
		os.Exit(0)
	case childInside:
		fail(inside())
		os.Exit(0)
	case childWatches, childWatchesByKprobes:
		fail(watchParent())
		os.Exit(0)
	}
	f, err := uverbs.Open(uverbs.Kernel(), "/dev/infiniband/uverbs0")
	fail(err)
	pd, err := f.AllocPD()
	fail(err)
	if os.Getenv(childEnv) == childHeaded {
		headless(f, pd)
	}
	if os.Getenv(childEnv) == childCrowd {
		fail(crowdOf(device{f, pd}))
		select {}
	}
	if os.Getenv(childEnv) == childHanded {
		_, err = f.RegDMABufMR(uverbs.DMABufMR{PD: pd, FD: 3, Access: accessAll, Length: 1 << 20})
		fail(err)
		fmt.Println("registered")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	a, err := gpualloc.Open("drm:vgem", gpualloc.Env{})
	fail(err)
	b, err := a.Alloc(context.Background(), 1<<20, gpualloc.Options{})
	fail(err)
	_, err = device{f, pd}.try(b, 0, 1<<20)
	fail(err)
	fail(b.CloseFDs())
	if os.Getenv(childEnv) == childForks {
		heir := exec.Command("cat") // until stdin ends
		heir.Stdin = os.Stdin
		heir.ExtraFiles = []*os.File{descriptorOf("/dev/infiniband/uverbs0")}
		fail(heir.Start())
		fmt.Println("registered", inode(b))
		os.Exit(0)
	}
	fmt.Println("registered", inode(b))
	select {}
}

// headless registers descriptor 3 before and after the end of the process's first
// thread.
func headless(f *uverbs.File, pd uint32) {
	register := func() {
		if _, err := f.RegDMABufMR(uverbs.DMABufMR{PD: pd, FD: 3, Access: accessAll, Length: 1 << 20}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	register()
	go func() {
		first := "/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/stat"
		for {
			text, err := os.ReadFile(first)
			if err != nil || bytes.Contains(text, []byte(") Z ")) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		register()
		fmt.Println("registered")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// descriptorOf duplicates this process's descriptor of a file.
func descriptorOf(path string) *os.File {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == path {
			n, _ := strconv.Atoi(filepath.Base(l))
			if dup, err := unix.Dup(n); err == nil {
				return os.NewFile(uintptr(dup), path)
			}
		}
	}
	return nil
}

// handTo starts a child that registers a buffer of ours, and returns when it has.
func handTo(t *testing.T, what string, b *gpualloc.Buffer) (cmd *exec.Cmd, stdin io.WriteCloser) {
	t.Helper()
	err := b.Segments()[0].Buf.Do(func(fd int) error {
		dup, err := unix.Dup(fd)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(dup), "dma-buf")
		defer file.Close()
		var out io.Reader
		cmd, stdin, out = runChild(t, what, file)
		_, err = fmt.Fscanf(out, "registered\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return cmd, stdin
}

// runChild starts the test binary as child.
func runChild(t *testing.T, what string, files ...*os.File) (cmd *exec.Cmd, stdin io.WriteCloser, stdout io.Reader) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.ExtraFiles = files
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, stdin, stdout
}
