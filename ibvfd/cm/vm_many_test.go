// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cm_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

//testbed:kernel 6.12
func TestVMManyConnections(t *testing.T) {
	onNIC(t)
	l := listening(t, address+":0")
	client, server := newSide(t, opened(t)), newSide(t, opened(t))
	before := ""
	for i := range testenv.Count(100) {
		connectPair(t, l, client, server)
		if i == 0 {
			before = usage(t)
		}
	}
	for range 200 * testenv.Slow() {
		if usage(t) == before {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("after one %s, in the end %s", before, usage(t))
}

// The other process is this binary, told where to connect.
const peerVar = "GPURDMA_TEST_CM_PEER"

// TestPeerProcess is the other process, and no test.
func TestPeerProcess(t *testing.T) {
	addr := os.Getenv(peerVar)
	if addr == "" {
		t.Skip("it is the other process of TestVMPeerKilled")
	}
	s := newSide(t, opened(t))
	if _, err := resolved(t, addr).Connect(limited(t), s.qp, param("")); err != nil {
		t.Fatal(err)
	}
	s.send("here")
	s.completion()
	if err := unix.Kill(unix.Getpid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-t.Context().Done()
}

//testbed:kernel 6.12
func TestVMPeerKilled(t *testing.T) {
	onNIC(t)
	l := listening(t, address+":0")
	s := newSide(t, opened(t))
	self, err := os.Executable()
	s.ok(err)
	peer := exec.CommandContext(limited(t), self, "-test.run=^TestPeerProcess$")
	peer.Env = append(os.Environ(), peerVar+"="+at(l))
	peer.Stdout, peer.Stderr = os.Stderr, os.Stderr
	s.ok(peer.Start())
	id, err := accepted(l, s, "")
	s.ok(err)
	closing(t, id)
	if got := string(s.message()); got != "here" {
		t.Errorf("came %q", got)
	}
	if err := id.Wait(limited(t)); err != nil {
		t.Error(err)
	}
	if err := peer.Wait(); err == nil {
		t.Error("the other process was not killed")
	}
	s.ok(id.Disconnect(limited(t)))
	if state, err := s.qp.State(); state != ibvfd.StateErr || err != nil {
		t.Errorf("queue pair in %v, %v", state, err)
	}
}

// The example of the package's documentation.
//
//testbed:kernel 6.12
func TestVMExample(t *testing.T) {
	onNIC(t)
	if err := meet(limited(t), address); err != nil {
		t.Error(err)
	}
}
