// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func command(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// listed reports whether RDMA netlink still shows the device: its removal
// begins with hiding it.
func listed(t testing.TB, device string) bool {
	t.Helper()
	c, err := rdmanl.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := c.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(d rdmanl.Device) bool { return d.Name == device })
}

// Deleting a NIC waits for our context. While it waits, all works; closing, in
// a process that goes on, lets it finish, and nothing is left. From Linux 7.3 on rxe
// takes itself away from the context instead, which then answers EIO and still closes.
func TestVMDeviceDeletedInUse(t *testing.T) {
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		noGrowth(t)
		const device, netdev, size = "rxe_gone", "gone0", 1 << 16
		command(t, "ip", "link", "add", netdev, "type", "dummy")
		t.Cleanup(func() { command(t, "ip", "link", "delete", netdev) })
		command(t, "ip", "addr", "add", "10.97.0.1/24", "dev", netdev)
		command(t, "ip", "link", "set", netdev, "up", "mtu", "4200")
		command(t, "rdma", "link", "add", device, "type", "rxe", "netdev", netdev)
		deleted, deleting := make(chan error, 1), false
		t.Cleanup(func() { // after all that is opened below was closed
			if !deleting {
				command(t, "rdma", "link", "delete", device)
				return
			}
			select {
			case err := <-deleted:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(bound):
				t.Fatal("the deletion waits for a context that is closed")
			}
			if _, err := os.Stat("/sys/class/infiniband/" + device); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is still there: %v", device, err)
			}
		})

		c, err := ibvfd.Open(device)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, c) })
		pd, err := c.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, pd) })
		buf := alloc(t, x.Spec, size, gpualloc.Options{})
		host, hmr := hostMR(t, pd, size)
		p := connect(t, pd, ibvfd.QPAttr{})
		attr := ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: size, Access: allRemote, Owner: buf}
		mr, err := pd.RegMR(attr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, mr) })

		deleting = true
		go func() {
			out, err := exec.Command("rdma", "link", "delete", device).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			deleted <- err
		}()
		for i := 0; listed(t, device); i++ {
			if i == 1000*testenv.Slow() {
				t.Fatal("the deletion did not begin")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if testenv.AtLeast(t, "7.3") {
			deleted <- <-deleted // it is over while all is open
			_, err := p.a.PostSend([]ibvfd.SendWR{{Op: ibvfd.OpSend}})
			_, again := pd.RegMR(attr)
			if !errors.Is(err, unix.EIO) || !errors.Is(again, unix.EIO) {
				t.Errorf("after the deletion: posting: %v; registering: %v; want EIO", err, again)
			}
			return
		}
		for round := range 50 {
			fill(host.Bytes(), uint64(round))
			if w := p.move(t, ibvfd.OpWrite, hmr, mr, 0, size); w.Err() != nil {
				t.Fatalf("WRITE %d under the deletion: %v", round, w.Err())
			}
			got := make([]byte, size)
			if _, err := buf.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, host.Bytes()) {
				t.Fatalf("WRITE %d under the deletion: wrong bytes", round)
			}
		}
		if again, err := pd.RegMR(attr); err != nil {
			t.Errorf("registering under the deletion: %v", err)
		} else {
			closed(t, again)
		}
		select {
		case err := <-deleted:
			t.Fatalf("the deletion did not wait for a context in use: %v", err)
		default:
		}
	})
}
