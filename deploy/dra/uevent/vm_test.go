// SPDX-License-Identifier: Apache-2.0

package uevent

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A PCI function that is removed, and one that comes back, is a change: also for a process in a network namespace
// of its own, as a pod has.
//
//testbed:machine fabric+EPYC
func TestVMRemovedFunction(t *testing.T) {
	testenv.VM(t)
	devices, err := filepath.Glob("/sys/bus/pci/devices/*/device")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(devices, func(name string) bool { // QEMU's edu, which no driver has
		text, err := os.ReadFile(name)
		return err == nil && string(text) == "0x11e8\n"
	})
	if i < 0 {
		t.Fatal("this machine has no device edu")
	}
	dir := filepath.Dir(devices[i])
	w := inNamespace(t)
	changes, done := make(chan struct{}, 100), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- w.watch(ctx, 100*time.Millisecond, most, func() { changes <- struct{}{} }) }()
	for _, c := range []struct {
		file  string
		there bool
	}{{filepath.Join(dir, "remove"), false}, {"/sys/bus/pci/rescan", true}} {
		if err := os.WriteFile(c.file, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		<-changes
		if _, err := os.Stat(dir); (err == nil) != c.there {
			t.Errorf("after %s: %v", c.file, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// inNamespace opens a watcher in a network namespace of its own.
func inNamespace(t *testing.T) *Watcher {
	t.Helper()
	type opened struct {
		w   *Watcher
		err error
	}
	got := make(chan opened)
	go func() { // its thread ends with it: it is not unlocked
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			got <- opened{nil, err}
			return
		}
		w, err := Open()
		got <- opened{w, err}
	}()
	o := <-got
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.w
}
