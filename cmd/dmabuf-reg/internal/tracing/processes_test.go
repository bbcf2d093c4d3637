// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// aThread is one that is not the process's first, for as long as the test lasts.
func aThread(t *testing.T) int {
	t.Helper()
	ids, done := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(done) })
	for { // the first one that is asked may be the first thread
		go func() {
			runtime.LockOSThread()
			ids <- unix.Gettid()
			<-done
		}()
		if id := <-ids; id != os.Getpid() {
			return id
		}
	}
}

// Processes have ended when the last has, and close does not wait for any.
func TestProcesses(t *testing.T) {
	var pids []int
	var running []*exec.Cmd
	for range 2 {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		running, pids = append(running, c), append(pids, c.Process.Pid)
	}
	p, err := openProcesses(pids)
	if err != nil {
		t.Fatal(err)
	}
	ended := func(within time.Duration) bool {
		select {
		case <-p.ended:
			return true
		case <-time.After(within):
			return false
		}
	}
	running[0].Process.Kill()
	running[0].Wait()
	if ended(50 * time.Millisecond) {
		t.Error("one of them runs")
	}
	running[1].Process.Kill()
	if !ended(time.Minute) {
		t.Error("both have ended") // the second one is not waited for yet
	}
	p.close()

	if p, err = openProcesses([]int{running[1].Process.Pid}); err != nil || !ended(time.Minute) {
		t.Errorf("one that has ended before: %v", err)
	}
	p.close()
	running[1].Wait()
	// The first of these is let go of again.
	for _, c := range []struct {
		pids []int
		as   any
	}{
		{[]int{os.Getpid(), pids[1]}, new(*cli.Unavailable)},
		{[]int{os.Getpid(), aThread(t)}, new(*cli.UsageError)},
	} {
		if p, err := openProcesses(c.pids); err == nil || !errors.As(err, c.as) {
			t.Errorf("%v: %+v, %v", c.pids, p, err)
		}
	}
	if p, err = openProcesses(nil); err != nil || ended(50*time.Millisecond) {
		t.Errorf("none: %v", err)
	}
	p.close()
}

// A process that is gone is no failure of what was asked of it.
func TestNoProcessToTrace(t *testing.T) {
	_, err := openProcesses([]int{1 << 30}) // more than the kernel has
	e := cli.Explain(err)
	if len(e) != 1 || e[0].Kind != cli.KindUnavailable || e[0].Errno == nil || !strings.Contains(e[0].Message, "process 1073741824") || !strings.Contains(e[0].Message, "name one that runs") {
		t.Errorf("%+v", e)
	}
}
