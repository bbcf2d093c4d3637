// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
)

// rping (rdma-core, librdmacm/examples/rping.c) is a program that we did not
// write. Its client advertises memory in a message of 16 bytes: address, key and
// size, big endian. The server READs it and says so by a message of the same
// length, whose content does not matter; the client advertises other memory, to
// which the server WRITEs what it read, and says so.
const (
	rpingInfo  = 16
	rpingSize  = 4000
	rpingCount = 5
)

// rpingText is what round i's buffer has: a line, then letters.
func rpingText(i int) []byte {
	const first, last = 'A', 'z'
	b := make([]byte, rpingSize)
	n := copy(b, fmt.Sprintf("rdma-ping-%d: ", i))
	c := byte(first + i%(last-first+1))
	for ; n < len(b); n++ {
		b[n] = c
		if c++; c > last {
			c = first
		}
	}
	b[len(b)-1] = 0
	return b
}

func info(addr uint64, rkey uint32) []byte {
	b := binary.BigEndian.AppendUint64(nil, addr)
	b = binary.BigEndian.AppendUint32(b, rkey)
	return binary.BigEndian.AppendUint32(b, rpingSize)
}

// rping starts it; its output is shown if it does not end well.
func rping(t *testing.T, args ...string) (wait func()) {
	t.Helper()
	path, err := exec.LookPath("rping")
	if err != nil {
		t.Fatalf("%v: install rdmacm-utils", err)
	}
	args = append(args, "-a", address, "-S", strconv.Itoa(rpingSize), "-v")
	cmd := exec.CommandContext(limited(t), path, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		err := cmd.Wait()
		text := out.String()
		if err != nil {
			t.Errorf("%q: %v\n%s%s", cmd.Args, err, text, said.String())
		}
		for i := range rpingCount {
			if want := string(rpingText(i)[:rpingSize-1]); !strings.Contains(text, want) {
				t.Errorf("%q has not printed round %d", cmd.Args, i)
			}
		}
	}
}

// Our client, rping's server: it echoes our bytes.
//
//testbed:kernel 7.2 6.12 6.1
func TestVMRpingServer(t *testing.T) {
	onNIC(t)
	const port = "7981"
	wait := rping(t, "-s", "-p", port)
	s := newSide(t, opened(t))
	var id *cm.ID
	for { // until it listens
		id = resolved(t, address+":"+port)
		_, err := id.Connect(limited(t), s.qp, param(""))
		if err == nil {
			break
		}
		var r *cm.RejectedError
		if !errors.As(err, &r) || r.Reason != cm.ReasonNobody {
			t.Fatal(err)
		}
		closed(t, id)
		s.renew()
		time.Sleep(20 * time.Millisecond)
	}
	const source, sink, tell = 0, 1 << 13, 1 << 15
	advertise := func(off int) {
		n := copy(s.mem[tell:], info(s.mr.IOVA()+uint64(off), s.mr.RKey()))
		_, err := s.qp.PostSend([]ibvfd.SendWR{{Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: []ibvfd.SGE{s.sge(tell, n)}}})
		s.ok(err)
		if got := s.message(); len(got) != rpingInfo {
			t.Fatalf("an answer of %d bytes", len(got))
		}
	}
	for i := range rpingCount {
		want := rpingText(i)
		copy(s.mem[source:], want)
		clear(s.mem[sink : sink+rpingSize])
		advertise(source)
		advertise(sink)
		if !bytes.Equal(s.mem[sink:sink+rpingSize], want) {
			t.Fatalf("round %d came back wrong", i)
		}
	}
	s.ok(id.Disconnect(limited(t)))
	wait()
}

// Our server, rping's client: it compares what comes back.
//
//testbed:kernel 7.2 6.12 6.1
func TestVMRpingClient(t *testing.T) {
	onNIC(t)
	l := listening(t, address+":0")
	s := newSide(t, opened(t))
	wait := rping(t, "-c", "-V", "-C", strconv.Itoa(rpingCount), "-p", strconv.Itoa(int(l.Addr().Port())))
	id, err := accepted(l, s, "")
	s.ok(err)
	closing(t, id)
	transfer := func(op ibvfd.Opcode) {
		m := s.message()
		if len(m) != rpingInfo || binary.BigEndian.Uint32(m[12:]) != rpingSize {
			t.Fatalf("advertised %x", m)
		}
		_, err := s.qp.PostSend([]ibvfd.SendWR{{
			Op: op, Flags: ibvfd.SendSignaled, SGE: []ibvfd.SGE{s.sge(0, rpingSize)},
			RemoteAddr: binary.BigEndian.Uint64(m), RKey: binary.BigEndian.Uint32(m[8:]),
		}})
		s.ok(err)
		s.completion()
	}
	goAhead := func() {
		_, err := s.qp.PostSend([]ibvfd.SendWR{{Op: ibvfd.OpSend, SGE: []ibvfd.SGE{s.sge(1<<15, rpingInfo)}}})
		s.ok(err)
	}
	for i := range rpingCount {
		clear(s.mem[:rpingSize])
		transfer(ibvfd.OpRead)
		if want := rpingText(i); !bytes.Equal(s.mem[:rpingSize], want) {
			t.Fatalf("round %d: read %q, want %q", i, s.mem[:rpingSize], want)
		}
		goAhead()
		transfer(ibvfd.OpWrite)
		goAhead()
	}
	s.ok(id.Wait(limited(t)))
	s.ok(id.Disconnect(limited(t)))
	wait()
}
