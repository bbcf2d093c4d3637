// SPDX-License-Identifier: Apache-2.0

package uevent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// Messages of the kernel, from a machine.
const (
	bound  = "bind@/devices/pci0000:00/0000:00:04.0\x00ACTION=bind\x00DEVPATH=/devices/pci0000:00/0000:00:04.0\x00SUBSYSTEM=pci\x00DRIVER=mlx5_core\x00PCI_CLASS=20700\x00PCI_ID=15B3:1021\x00PCI_SLOT_NAME=0000:00:04.0\x00SEQNUM=2013\x00"
	loaded = "add@/module/mlx5_ib\x00ACTION=add\x00DEVPATH=/module/mlx5_ib\x00SUBSYSTEM=module\x00SEQNUM=2014\x00"
	verbs  = "remove@/devices/virtual/infiniband_verbs/uverbs0\x00ACTION=remove\x00DEVPATH=/devices/virtual/infiniband_verbs/uverbs0\x00SUBSYSTEM=infiniband_verbs\x00MAJOR=231\x00MINOR=192\x00DEVNAME=infiniband/uverbs0\x00SEQNUM=2015\x00"
	block  = "change@/devices/virtual/block/loop0\x00ACTION=change\x00DEVPATH=/devices/virtual/block/loop0\x00SUBSYSTEM=block\x00DISK_MEDIA_CHANGE=1\x00MAJOR=7\x00MINOR=0\x00DEVNAME=loop0\x00DEVTYPE=disk\x00SEQNUM=2016\x00"
)

func TestConcerns(t *testing.T) {
	for text, want := range map[string]bool{
		bound: true, loaded: true, verbs: true, block: false, "": false, "\x00": false,
		"libudev\x00\xfe\xed\xca\xfe\x00SUBSYSTEM=pci\x00":                         false,
		"add@devices\x00SUBSYSTEM=pci\x00":                                         false,
		"@/devices\x00SUBSYSTEM=pci\x00":                                           false,
		"add@/devices\x00SUBSYSTEM=pc\x00":                                         false,
		"add@/devices\x00SUBSYSTEM=pci":                                            true,
		"add@/devices\x00XSUBSYSTEM=pci\x00":                                       false,
		"add@/SUBSYSTEM=pci":                                                       false,
		"add@/devices\x00SUBSYSTEM=pci\x00" + strings.Repeat("A=b\x00", longest/4): false,
		"add@/devices\x00\xff\xff=\x00SUBSYSTEM=block\x00SUBSYSTEM=pci\x00":        false,
	} {
		if concerns([]byte(text)) != want {
			t.Errorf("%.80q concerns: %v", text, !want)
		}
	}
}

func FuzzConcerns(f *testing.F) {
	for _, text := range []string{bound, loaded, verbs, block, "libudev\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if concerns(text) && (len(text) > longest || !strings.Contains(string(text), "\x00SUBSYSTEM=")) {
			t.Errorf("%q concerns", text)
		}
	})
}

// Events that come one after another are one change, as long as they do not go on for ever.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		gaps []time.Duration // before each event
		want []time.Duration // when there was a change
	}{
		"none":             {nil, nil},
		"one":              {[]time.Duration{time.Minute}, []time.Duration{61 * time.Second}},
		"several at once":  {[]time.Duration{0, 0, 0, 0}, []time.Duration{time.Second}},
		"a driver":         {[]time.Duration{0, time.Second / 2, time.Second / 2, time.Second / 2}, []time.Duration{5 * time.Second / 2}},
		"two drivers":      {[]time.Duration{0, time.Second / 2, 2 * time.Second}, []time.Duration{3 * time.Second / 2, 7 * time.Second / 2}},
		"they do not stop": {slices.Repeat([]time.Duration{time.Second * 3 / 4}, 20), []time.Duration{10*time.Second + 3*time.Second/4, 16 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			events, start := make(chan struct{}, 1), time.Now()
			var got []time.Duration
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				settle(ctx, events, quiet, most, func() { got = append(got, time.Since(start)) })
			}()
			for _, gap := range c.gaps {
				time.Sleep(gap)
				select {
				case events <- struct{}{}:
				default:
				}
			}
			time.Sleep(time.Hour)
			stop()
			<-done
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: changes after %v, want %v", name, got, c.want)
			}
		})
	}
}

// Messages of other devices, and texts that are no messages, are no change; those that come after them are.
func TestWatch(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	w := of(fds[0])
	events, failed := make(chan struct{}, 1), make(chan error)
	go func() { failed <- w.read(events) }()
	send := func(text string) {
		t.Helper()
		for err = unix.EAGAIN; err == unix.EAGAIN; {
			err = unix.Send(fds[1], []byte(text), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{block, strings.Repeat("x", 20000), "", "\x00", "libudev\x00\xfe\xed\xca\xfe\x00SUBSYSTEM=pci\x00"} {
		send(text)
	}
	other, err := unix.FcntlInt(uintptr(fds[1]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	for { // until all was read
		n, err := unix.IoctlGetInt(other, unix.SIOCOUTQ)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if len(events) > 0 {
		t.Error("they are a change")
	}
	for _, text := range []string{bound, loaded, verbs} {
		send(text)
		<-events
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("a closed socket is read")
	}
}

// Lost messages are a change, whatever they were: the kernel says ENOBUFS.
func TestLost(t *testing.T) {
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := device(t, "/sys/class/mem/null/uevent") // of no subsystem that counts
	for range 2000 {                                // the smallest buffer has room for a few
		ask(t, file)
	}
	events, failed := make(chan struct{}, 1), make(chan error)
	go func() { failed <- w.read(events) }()
	<-events
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	<-failed
}

// device is the first file of some by which the kernel can be asked for a message of a device.
func device(t *testing.T, patterns ...string) string {
	t.Helper()
	for _, pattern := range patterns {
		if names, _ := filepath.Glob(pattern); len(names) > 0 {
			return names[0]
		}
	}
	t.Skipf("sysfs has none of %v here", patterns)
	return ""
}

// ask makes the kernel send a message.
func ask(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, []byte("change"), 0); err != nil {
		t.Skipf("this process may not ask for messages: %v", err)
	}
}

// A message that the kernel sends for a PCI function or a module arrives.
func TestKernel(t *testing.T) {
	file := device(t, "/sys/bus/pci/devices/*/uevent", "/sys/module/*/uevent")
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan struct{}, 10)
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- w.watch(ctx, time.Millisecond, time.Second, func() { changes <- struct{}{} }) }()
	ask(t, file)
	<-changes
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A socket that is closed elsewhere ends Watch with an error.
func TestSocketFails(t *testing.T) {
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Watch(t.Context(), func() {}); err == nil {
		t.Error("no error")
	}
}
