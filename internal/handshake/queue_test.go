// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel's queue is seen to be half full, and to be empty again.
func TestQueue(t *testing.T) {
	const most = 8
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(s), "listener")
	defer f.Close()
	if err := unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(s, most); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	halfFull := queueOf(l)
	for i := range most/2 + 1 {
		if i < most/2 && halfFull() {
			t.Fatalf("half full with %d of %d", i, most)
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for end := time.Now().Add(time.Minute); !halfFull(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never half full")
		}
	}
	for range most/2 + 1 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if halfFull() {
		t.Error("half full and empty")
	}
	if queueOf(pipeListener{})() {
		t.Error("something is known of another listener")
	}
}

type pipeListener struct{ net.Listener }
