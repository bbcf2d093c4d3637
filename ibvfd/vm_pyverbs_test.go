// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// pyPeer is testdata/verbs_peer.py: a queue pair and a buffer of pyverbs.
type pyPeer struct {
	t   *testing.T
	in  *json.Encoder
	out *bufio.Scanner

	Addr uint64
	RKey uint32
}

// pyOrder is a line to it.
type pyOrder map[string]any

// pyReply is what it answers.
type pyReply struct {
	ID, Length uint64
	Status     ibvfd.WCStatus
	Opcode     ibvfd.WCOpcode
	Imm        *uint32
	Bytes      string
}

// startPython starts the peer and connects e with it.
func startPython(t *testing.T, e *end) *pyPeer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "testdata/verbs_peer.py", nic, fmt.Sprint(e.qp.Local().GIDIndex))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the peer (python3-pyverbs): %v", err)
		}
		cancel()
	})
	p := &pyPeer{t: t, in: json.NewEncoder(in), out: bufio.NewScanner(out)}
	p.out.Buffer(nil, 1<<20)
	var hello struct {
		QPN, PSN uint32
		GID      string
		Addr     uint64
		RKey     uint32
	}
	p.answer(&hello)
	p.Addr, p.RKey = hello.Addr, hello.RKey
	gid, err := netip.ParseAddr(hello.GID)
	if err != nil {
		t.Fatal(err)
	}
	local := e.qp.Local()
	p.do(pyOrder{"do": "connect", "qpn": local.QPN, "psn": local.PSN, "gid": longGID(local.GID)})
	remote := ibvfd.Endpoint{QPN: hello.QPN, PSN: hello.PSN, GID: gid.As16(), MTU: pingMTU}
	if err := e.qp.Connect(remote, patientPing); err != nil {
		t.Fatal(err)
	}
	return p
}

// longGID is all eight words, as pyverbs wants them.
func longGID(gid [16]byte) string { return netip.AddrFrom16(gid).StringExpanded() }

func (p *pyPeer) answer(into any) {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("the peer has ended: %v", p.out.Err())
	}
	if err := json.Unmarshal(p.out.Bytes(), into); err != nil {
		p.t.Fatalf("%v in %q", err, p.out.Text())
	}
}

func (p *pyPeer) do(o pyOrder) (r pyReply) {
	p.t.Helper()
	if err := p.in.Encode(o); err != nil {
		p.t.Fatal(err)
	}
	p.answer(&r)
	return r
}

func (p *pyPeer) put(off int, b []byte) {
	p.t.Helper()
	p.do(pyOrder{"do": "put", "off": off, "bytes": hex.EncodeToString(b)})
}

func (p *pyPeer) get(off, n int) []byte {
	p.t.Helper()
	b, err := hex.DecodeString(p.do(pyOrder{"do": "get", "off": off, "length": n}).Bytes)
	if err != nil || len(b) != n {
		p.t.Fatal(len(b), err)
	}
	return b
}

// post has it carry out a work request, whose completion must be good.
func (p *pyPeer) post(op string, off, n int, more pyOrder) {
	p.t.Helper()
	o := pyOrder{"do": "post", "op": op, "off": off, "length": n}
	for k, v := range more {
		o[k] = v
	}
	if r := p.do(o); r.ID != 1 || r.Status != ibvfd.WCSuccess {
		p.t.Fatalf("%s: %+v", op, r)
	}
}

// Every operation between us and a program that we did not write, from either
// side; our memory is a dma-buf, and every byte is compared.
//
//testbed:kernel 6.12
func TestVMPyverbs(t *testing.T) {
	pd := openPD(t)
	e := newEnd(t, pd, exporter)
	p := startPython(t, e)
	t.Run("ours", func(t *testing.T) { p.t = t; oursToPython(t, e, p) })
	t.Run("theirs", func(t *testing.T) { p.t = t; pythonToOurs(t, e, p) })
}

func word(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

func oursToPython(t *testing.T, e *end, p *pyPeer) {
	run := func(want ibvfd.WCOpcode, wr ibvfd.SendWR) {
		t.Helper()
		wr.ID, wr.RKey, wr.Flags = 5, p.RKey, ibvfd.SendSignaled
		post(t, e.qp, wr)
		if c := one(t, e.cq); c.Err() != nil || c.ID != 5 || c.Opcode != want {
			t.Fatalf("%+v", c)
		}
	}
	same := func(what string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Errorf("%s: wrong bytes", what)
		}
	}
	data := make([]byte, 6000)
	fill(data, 1)
	e.put(t, 0, data)

	run(ibvfd.WCOpWrite, ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: sge(e.mr, 1, 5555), RemoteAddr: p.Addr + 3})
	same("WRITE", p.get(2, 5557), append(append([]byte{0}, data[1:5556]...), 0))

	p.put(20000, data[:2000])
	run(ibvfd.WCOpRead, ibvfd.SendWR{Op: ibvfd.OpRead, SGE: sge(e.mr, 30001, 1500), RemoteAddr: p.Addr + 20007})
	same("READ", e.get(t, 30000, 1502), append(append([]byte{0}, data[7:1507]...), 0))

	p.put(40000, word(1<<40+1))
	run(ibvfd.WCOpFetchAdd, ibvfd.SendWR{Op: ibvfd.OpFetchAdd, SGE: sge(e.mr, 40000, 8), RemoteAddr: p.Addr + 40000, CompareAdd: 1<<33 + 5})
	same("fetch and add, before", e.get(t, 40000, 8), word(1<<40+1))
	same("fetch and add", p.get(40000, 8), word(1<<40+1<<33+6))
	run(ibvfd.WCOpCompareSwap, ibvfd.SendWR{Op: ibvfd.OpCompareSwap, SGE: sge(e.mr, 40008, 8), RemoteAddr: p.Addr + 40000, CompareAdd: 1<<40 + 1<<33 + 6, Swap: 77})
	same("compare and swap, before", e.get(t, 40008, 8), word(1<<40+1<<33+6))
	same("compare and swap", p.get(40000, 8), word(77))

	for _, x := range []struct {
		op   ibvfd.Opcode
		wc   ibvfd.WCOpcode
		imm  uint32
		with bool
		far  ibvfd.WCOpcode
	}{
		{ibvfd.OpSend, ibvfd.WCOpSend, 0, false, ibvfd.WCOpRecv},
		{ibvfd.OpSendImm, ibvfd.WCOpSend, 0xfeed0001, true, ibvfd.WCOpRecv},
		{ibvfd.OpWriteImm, ibvfd.WCOpWrite, 0x80000002, true, ibvfd.WCOpRecvWriteImm},
	} {
		p.put(50000, make([]byte, 1000))
		p.do(pyOrder{"do": "receive", "off": 50000, "length": 1000})
		run(x.wc, ibvfd.SendWR{Op: x.op, SGE: sge(e.mr, 100, 700), RemoteAddr: p.Addr + 50000, Imm: x.imm})
		r := p.do(pyOrder{"do": "wait"})
		if r.ID != 2 || r.Status != ibvfd.WCSuccess || r.Opcode != x.far || r.Length != 700 || (r.Imm != nil) != x.with || x.with && *r.Imm != x.imm {
			t.Errorf("%v: the peer has %+v", x.op, r)
		}
		same(fmt.Sprint(x.op), p.get(50000, 701), append(data[100:800:800], 0))
	}
}

func pythonToOurs(t *testing.T, e *end, p *pyPeer) {
	at := func(off int, more pyOrder) pyOrder {
		o := pyOrder{"addr": e.mr.IOVA() + uint64(off), "rkey": e.mr.RKey()}
		for k, v := range more {
			o[k] = v
		}
		return o
	}
	same := func(what string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Errorf("%s: wrong bytes", what)
		}
	}
	data := make([]byte, 6000)
	fill(data, 2)
	p.put(0, data)
	e.put(t, 0, make([]byte, placeSize))

	p.post("write", 1, 5555, at(3, nil))
	same("WRITE", e.get(t, 2, 5557), append(append([]byte{0}, data[1:5556]...), 0))

	e.put(t, 20000, data[:2000])
	p.put(30000, make([]byte, 1502))
	p.post("read", 30001, 1500, at(20007, nil))
	same("READ", p.get(30000, 1502), append(append([]byte{0}, data[7:1507]...), 0))

	e.put(t, 40000, word(1<<40+1))
	p.post("fetch-add", 40000, 8, at(40000, pyOrder{"compare_add": 1<<33 + 5}))
	same("fetch and add, before", p.get(40000, 8), word(1<<40+1))
	same("fetch and add", e.get(t, 40000, 8), word(1<<40+1<<33+6))
	p.post("compare-swap", 40008, 8, at(40000, pyOrder{"compare_add": 1<<40 + 1<<33 + 6, "swap": 77}))
	same("compare and swap, before", p.get(40008, 8), word(1<<40+1<<33+6))
	same("compare and swap", e.get(t, 40000, 8), word(77))

	for _, x := range []struct {
		op   string
		far  ibvfd.WCOpcode
		imm  uint32
		with bool
	}{
		{"send", ibvfd.WCOpRecv, 0, false},
		{"send-imm", ibvfd.WCOpRecv, 0xfeed0001, true},
		{"write-imm", ibvfd.WCOpRecvWriteImm, 0x80000002, true},
	} {
		e.put(t, 50000, make([]byte, 1000))
		receive(t, e.qp, ibvfd.RecvWR{ID: 9, SGE: sge(e.mr, 50000, 1000)})
		more := pyOrder{"imm": x.imm}
		if x.op == "write-imm" {
			more = at(50000, more)
		}
		p.post(x.op, 100, 700, more)
		c := one(t, e.cq)
		if c.Err() != nil || c.ID != 9 || c.Opcode != x.far || c.ByteLen != 700 || (c.Flags&ibvfd.WCWithImm != 0) != x.with || x.with && c.Imm != x.imm {
			t.Errorf("%s: received %+v", x.op, c)
		}
		same(x.op, e.get(t, 50000, 701), append(data[100:800:800], 0))
	}
}
