// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// addNIC makes a software NIC on a net device of its own, to be broken. The
// test deletes the NIC, and its end the net device.
func addNIC(t *testing.T, nic, netdev string) {
	t.Helper()
	tool(t, "ip", "link", "add", netdev, "type", "dummy")
	t.Cleanup(func() { tool(t, "ip", "link", "delete", netdev) })
	tool(t, "ip", "addr", "add", "10.98.0.1/24", "dev", netdev)
	tool(t, "ip", "link", "set", netdev, "up", "mtu", "4200")
	tool(t, "rdma", "link", "add", nic, "type", "rxe", "netdev", netdev)
}

// sentPackets is the NIC's own count.
func sentPackets(t *testing.T, nic string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/sys/class/infiniband", nic, "ports/1/hw_counters/sent_pkts"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// moving waits until the NIC has sent a thousand packets more.
func moving(t *testing.T, nic string) {
	t.Helper()
	from := sentPackets(t, nic)
	for i := 0; sentPackets(t, nic) <= from+1000; i++ {
		if i == 1000*testenv.Slow() {
			t.Fatalf("no bytes move on %s", nic)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// midTransfer starts a long verification and waits until packets flow.
func midTransfer(t *testing.T, nic string, more ...string) *run {
	t.Helper()
	r := command(t, append([]string{"verify", "--gpu", "drm:vgem", "--nic", nic, "--size", "64MiB"}, more...)...)
	r.begin(t)
	moving(t, nic)
	return r
}

func TestVMSignalsMidTransfer(t *testing.T) {
	testenv.VM(t)
	for _, tt := range []struct {
		signal unix.Signal
		status int
	}{
		{unix.SIGINT, cli.ExitInterrupted},
		{unix.SIGTERM, cli.ExitInterrupted},
		{unix.SIGHUP, cli.ExitInterrupted},
		{unix.SIGKILL, -1}, // the kernel cleans up
	} {
		t.Run(tt.signal.String(), func(t *testing.T) {
			before := leftBehind(t)
			r := midTransfer(t, "rxe0")
			if err := r.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			if got := r.status(t); got != tt.status {
				t.Errorf("exit status %d, want %d\n%s%s", got, tt.status, r.out.String(), r.err.String())
			}
			if tt.status >= 0 && !strings.Contains(r.err.String(), "interrupted") {
				t.Errorf("stderr %q does not say what happened", r.err.String())
			}
			if tt.status >= 0 && !strings.Contains(r.out.String(), "NO VERDICT: it was interrupted") {
				t.Errorf("a verdict:\n%s", r.out.String())
			}
			nothingMore(t, before)
		})
	}
}

// Deleting the NIC under a transfer waits for our context to close: bytes go on
// moving. A signal ends the transfer, and the deletion goes through. From Linux 7.3 on
// the deletion does not wait, and ends the transfer.
func TestVMDeviceDeletedMidTransfer(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	const nic = "rxe_gone"
	addNIC(t, nic, "gone0")
	r := midTransfer(t, nic)
	deleted := make(chan error, 1)
	go func() {
		out, err := exec.Command("rdma", "link", "delete", nic).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		deleted <- err
	}()
	// It begins with taking the device off the list.
	for i := 0; exec.Command("rdma", "dev", "show", nic).Run() == nil; i++ {
		if i == 1000*testenv.Slow() {
			t.Fatal("the deletion did not begin")
		}
		time.Sleep(10 * time.Millisecond)
	}
	want := cli.ExitFailed
	if !testenv.AtLeast(t, "7.3") {
		want = cli.ExitInterrupted
		moving(t, nic)
		select {
		case err := <-deleted:
			t.Fatalf("the deletion did not wait for the transfer: %v", err)
		default:
		}
		if err := r.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	if status := r.status(t); status != want {
		t.Errorf("exit status %d, want %d\n%s%s", status, want, r.out.String(), r.err.String())
	}
	select {
	case err := <-deleted:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.Limit(time.Minute)):
		t.Fatal("the deletion still waits for a context that is closed")
	}
	nothingMore(t, before)
}

// A net device that goes down ends the transfer by an error completion, and the
// command says so.
func TestVMNetDeviceDownMidTransfer(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	const nic, netdev = "rxe_down", "down0"
	addNIC(t, nic, netdev)
	r := midTransfer(t, nic, "--json")
	tool(t, "ip", "link", "set", netdev, "down")
	if status := r.status(t); status != cli.ExitFailed {
		t.Errorf("exit status %d, want %d\n%s", status, cli.ExitFailed, r.err.String())
	}
	d := parse[verifyDoc](t, r.out.Bytes())
	if len(d.Errors) != 1 || d.Errors[0].Kind != cli.KindTransfer || d.Errors[0].Remedy == "" || len(d.Result.Rows) != 1 || d.Result.Rows[0].OK {
		t.Errorf("errors %+v, rows %+v; want one of kind %q with a remedy", d.Errors, d.Result.Rows, cli.KindTransfer)
	}
	tool(t, "rdma", "link", "delete", nic)
	nothingMore(t, before)
}

// Without any RDMA device, every command says so, and what would make one.
func TestVMNoRDMADevice(t *testing.T) {
	testenv.VM(t)
	const nic, node = "rxe0", "/dev/infiniband/uverbs0"
	info, err := os.Stat(node)
	if err != nil {
		t.Fatal(err)
	}
	tool(t, "rdma", "link", "delete", nic)
	defer func() {
		tool(t, "rdma", "link", "add", nic, "type", "rxe", "netdev", "dummy0")
		if err := os.Chmod(node, info.Mode().Perm()); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"auto", nic} {
		for _, verb := range []string{"register", "verify"} {
			r := command(t, verb, "--json", "--gpu", "drm:vgem", "--nic", name)
			message := checkRefusal(t, r, cli.ExitUnavailable, cli.KindUnavailable, "ENODEV", "no RDMA device")
			if !strings.Contains(message, "rdma link add") {
				t.Errorf("%s does not say what to do: %s", verb, message)
			}
		}
	}
	// Once, not for each memory that there is.
	checkRefusal(t, command(t, "verify", "--json"), cli.ExitUnavailable, cli.KindUnavailable, "ENODEV", "no RDMA device")
	r := command(t, "devices", "--json")
	if status := r.do(t); status != cli.ExitOK {
		t.Errorf("devices: exit status %d: %s", status, r.err.String())
	}
}

// A NIC that is not there is refused once, with those that are.
func TestVMVerifyNoSuchNIC(t *testing.T) {
	testenv.VM(t)
	checkRefusal(t, command(t, "verify", "--json", "--nic", "nope"), cli.ExitUnavailable, cli.KindUnavailable, "ENODEV", "there are: rxe0")
	r := command(t, "verify", "--nic", "nope")
	if status := r.do(t); status != cli.ExitUnavailable || r.out.Len() > 0 {
		t.Errorf("exit status %d, and on stdout:\n%s", status, &r.out)
	}
}

// Host memory passes, and is no proof of a GPU's.
//
//testbed:kernel 7.2 6.12
func TestVMVerifyNoGPU(t *testing.T) {
	testenv.VM(t)
	r := command(t, "verify", "--gpu", "udmabuf", "--case", "whole buffer", "--require-direct")
	if status := r.do(t); status != cli.ExitUnavailable || !strings.Contains(r.out.String(), "PASS: 1 of 1") || !strings.Contains(r.err.String(), "no memory of a GPU was tried") {
		t.Errorf("exit status %d\n%s%s", status, &r.out, &r.err)
	}
}
