// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// peerVar makes the test binary the other process: its value is where that
// one's memory comes from, an exporter's spec or hostSpec.
const (
	peerVar  = "GPURDMA_TEST_PEER"
	hostSpec = "host memory"
)

// place is a registered piece of memory of either kind.
type place struct {
	mr *ibvfd.MR
	io interface {
		io.ReaderAt
		io.WriterAt
	}
}

// hostIO reads and writes host memory as a dma-buf is read and written.
type hostIO []byte

func (h hostIO) ReadAt(p []byte, off int64) (int, error)  { return copy(p, h[off:]), nil }
func (h hostIO) WriteAt(p []byte, off int64) (int, error) { return copy(h[off:], p), nil }

const placeSize = 1 << 16

func newPlace(t testing.TB, pd *ibvfd.PD, spec string) place {
	t.Helper()
	if spec == hostSpec {
		mem, mr := hostMR(t, pd, placeSize)
		return place{mr, hostIO(mem.Bytes())}
	}
	buf := alloc(t, spec, placeSize, gpualloc.Options{})
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: placeSize, IOVA: 1 << 33, Access: allRemote, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, mr) })
	return place{mr, buf}
}

func (p place) get(t testing.TB, off, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := p.io.ReadAt(b, int64(off)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (p place) put(t testing.TB, off int, b []byte) {
	t.Helper()
	if _, err := p.io.WriteAt(b, int64(off)); err != nil {
		t.Fatal(err)
	}
}

// hello is what one process tells the other before they connect.
type hello struct {
	Endpoint ibvfd.Endpoint
	Addr     uint64
	RKey     uint32
}

// order is what the tester has its peer do; each is answered by an answer.
type order struct {
	Connect  *ibvfd.Endpoint
	Receive  bool // into these: offset and length of each
	Into     [][2]int
	Wait     bool // for a completion
	Put      []byte
	Off, Get int
}

type reply struct {
	WC    ibvfd.WC
	Bytes []byte
	Err   string
}

// end is one side: a queue pair, its CQ and its memory.
type end struct {
	place
	qp *ibvfd.QP
	cq *ibvfd.CQ
}

func newEnd(t testing.TB, pd *ibvfd.PD, spec string) *end {
	t.Helper()
	e := &end{place: newPlace(t, pd, spec), cq: waitCQ(t, pd)}
	e.qp = newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: e.cq, RecvCQ: e.cq, SendDepth: 16, RecvDepth: 16, SendSGE: 4, RecvSGE: 4, Inline: 64})
	return e
}

func (e *end) hello() hello { return hello{e.qp.Local(), e.mr.IOVA(), e.mr.RKey()} }

// TestPeerProcess is the other process of TestVMTwoProcesses. Run by itself it does
// nothing.
func TestPeerProcess(t *testing.T) {
	spec := os.Getenv(peerVar)
	if spec == "" {
		return
	}
	in, out := gob.NewDecoder(os.NewFile(3, "orders")), gob.NewEncoder(os.NewFile(4, "replies"))
	e := newEnd(t, openPD(t), spec)
	if err := out.Encode(e.hello()); err != nil {
		t.Fatal(err)
	}
	for {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if err := out.Encode(e.obey(t, &o)); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *end) obey(t testing.TB, o *order) (r reply) {
	t.Helper()
	var err error
	switch {
	case o.Connect != nil:
		err = e.qp.Connect(*o.Connect, ibvfd.ConnectAttr{Timeout: 20})
	case o.Receive:
		wr := ibvfd.RecvWR{ID: 100}
		for _, s := range o.Into {
			wr.SGE = append(wr.SGE, sge(e.mr, s[0], s[1])...)
		}
		_, err = e.qp.PostRecv([]ibvfd.RecvWR{wr})
	case o.Wait:
		r.WC = one(t, e.cq)
	case o.Put != nil:
		e.put(t, o.Off, o.Put)
	default:
		r.Bytes = e.get(t, o.Off, o.Get)
	}
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

// peer is the other process.
type peer struct {
	hello
	in         *gob.Encoder
	out        *gob.Decoder
	stop, kill func() // of which the first that is called counts
}

func startPeer(t testing.TB, spec string) *peer {
	t.Helper()
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestPeerProcess$", "-test.v")
	cmd.Env = append(os.Environ(), peerVar+"="+spec)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	p := &peer{in: gob.NewEncoder(in), out: gob.NewDecoder(out)}
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			in.Close()
			if err := cmd.Wait(); err != nil || !bytes.Contains(log.Bytes(), []byte("--- PASS: TestPeerProcess")) {
				t.Errorf("the peer with %s: %v\n%s", spec, err, log.Bytes())
			}
			cancel()
			out.Close()
		})
	}
	p.kill = func() {
		once.Do(func() {
			cancel()
			_ = cmd.Wait()
			in.Close()
			out.Close()
		})
	}
	t.Cleanup(p.stop)
	if err := p.out.Decode(&p.hello); err != nil {
		t.Fatalf("the peer says nothing: %v", err)
	}
	return p
}

func (p *peer) do(t testing.TB, o order) reply {
	t.Helper()
	var r reply
	if err := errors.Join(p.in.Encode(o), p.out.Decode(&r)); err != nil {
		t.Fatal(err)
	}
	if r.Err != "" {
		t.Fatal(r.Err)
	}
	return r
}

func (p *peer) get(t testing.TB, off, n int) []byte {
	t.Helper()
	return p.do(t, order{Off: off, Get: n}).Bytes
}

// Every operation between two processes, whose memory is of either kind: every
// byte and every completion, of both sides.
func TestVMTwoProcesses(t *testing.T) {
	pd := openPD(t)
	t.Run("host", func(t *testing.T) { twoProcesses(t, pd, hostSpec, hostSpec) })
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		for _, specs := range [][2]string{{hostSpec, x.Spec}, {x.Spec, hostSpec}, {x.Spec, x.Spec}} {
			twoProcesses(t, pd, specs[0], specs[1])
		}
	})
}

func twoProcesses(t *testing.T, pd *ibvfd.PD, ours, theirs string) {
	t.Helper()
	e, p := newEnd(t, pd, ours), startPeer(t, theirs)
	defer p.stop()
	local := e.qp.Local()
	p.do(t, order{Connect: &local})
	if err := e.qp.Connect(p.Endpoint, ibvfd.ConnectAttr{Timeout: 20}); err != nil {
		t.Fatal(err)
	}
	what := fmt.Sprintf("%s to %s", ours, theirs)
	run := func(op ibvfd.WCOpcode, wrs ...ibvfd.SendWR) {
		t.Helper()
		wrs[len(wrs)-1].Flags |= ibvfd.SendSignaled
		for i := range wrs {
			wrs[i].ID = uint64(i)
		}
		if n, err := e.qp.PostSend(wrs); n != len(wrs) || err != nil {
			t.Fatalf("%s: posted %d, %v", what, n, err)
		}
		if c := one(t, e.cq); c.Err() != nil || c.Opcode != op || c.ID != uint64(len(wrs)-1) {
			t.Fatalf("%s: completion %+v, want success of opcode %d", what, c, op)
		}
	}
	same := func(name string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: %s: wrong bytes", what, name)
		}
	}
	at := func(off int) uint64 { return p.Addr + uint64(off) }
	data := make([]byte, 20000)
	fill(data, 77)
	e.put(t, 0, data)
	p.do(t, order{Put: data[5000:], Off: 40000})

	run(ibvfd.WCOpWrite, ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: sge(e.mr, 1, 9999), RemoteAddr: at(3), RKey: p.RKey})
	same("WRITE", p.get(t, 0, 10010), append(append(make([]byte, 3), data[1:10000]...), make([]byte, 8)...))

	run(ibvfd.WCOpRead, ibvfd.SendWR{Op: ibvfd.OpRead, SGE: sge(e.mr, 30000, 9001), RemoteAddr: at(40005), RKey: p.RKey})
	same("READ", e.get(t, 29999, 9003), append(append(make([]byte, 1), data[5005:14006]...), 0))

	// Gather, four pieces into one range; scatter, one range into three.
	gather := append(append(append(sge(e.mr, 10, 1), sge(e.mr, 5000, 4097)...), sge(e.mr, 0, 7)...), sge(e.mr, 300, 95)...)
	run(ibvfd.WCOpWrite, ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: gather, RemoteAddr: at(20000), RKey: p.RKey})
	joined := append(append(append(bytes.Clone(data[10:11]), data[5000:9097]...), data[:7]...), data[300:395]...)
	same("gather", p.get(t, 20000, 4200), joined)
	scatter := append(append(sge(e.mr, 45000, 100), sge(e.mr, 50000, 3000)...), sge(e.mr, 46000, 1100)...)
	run(ibvfd.WCOpRead, ibvfd.SendWR{Op: ibvfd.OpRead, SGE: scatter, RemoteAddr: at(20000), RKey: p.RKey})
	same("scatter", append(append(e.get(t, 45000, 100), e.get(t, 50000, 3000)...), e.get(t, 46000, 1100)...), joined)

	// Messages into scattered memory.
	for i, wr := range []ibvfd.SendWR{
		{Op: ibvfd.OpSend, SGE: sge(e.mr, 100, 1000)},
		{Op: ibvfd.OpSendImm, Imm: 0xfeed0000 + 1, Flags: ibvfd.SendSolicited, SGE: sge(e.mr, 2000, 1000)},
	} {
		p.do(t, order{Receive: true, Into: [][2]int{{30000, 600}, {31000, 500}}})
		run(ibvfd.WCOpSend, wr)
		c := p.do(t, order{Wait: true}).WC
		if c.ID != 100 || c.Err() != nil || c.Opcode != ibvfd.WCOpRecv || c.ByteLen != 1000 || (c.Flags&ibvfd.WCWithImm != 0) != (i == 1) || i == 1 && c.Imm != wr.Imm {
			t.Fatalf("%s: received %+v", what, c)
		}
		from := int(wr.SGE[0].Addr - e.mr.IOVA())
		same("SEND", append(p.get(t, 30000, 600), p.get(t, 31000, 400)...), data[from:from+1000])
	}

	p.do(t, order{Receive: true})
	run(ibvfd.WCOpWrite, ibvfd.SendWR{Op: ibvfd.OpWriteImm, Imm: 0xfeed0002, SGE: sge(e.mr, 4000, 500), RemoteAddr: at(33000), RKey: p.RKey})
	if c := p.do(t, order{Wait: true}).WC; c.Err() != nil || c.Opcode != ibvfd.WCOpRecvWriteImm || c.Imm != 0xfeed0002 || c.ByteLen != 500 {
		t.Fatalf("%s: WRITE with immediate: received %+v", what, c)
	}
	same("WRITE with immediate", p.get(t, 33000, 500), data[4000:4500])

	// Atomics; a fence orders what reads a value before what writes from where it
	// went.
	p.do(t, order{Put: binary.NativeEndian.AppendUint64(nil, 1<<40), Off: 36000})
	run(ibvfd.WCOpFetchAdd, ibvfd.SendWR{Op: ibvfd.OpFetchAdd, SGE: sge(e.mr, 60000, 8), RemoteAddr: at(36000), RKey: p.RKey, CompareAdd: 5})
	run(ibvfd.WCOpCompareSwap, ibvfd.SendWR{Op: ibvfd.OpCompareSwap, SGE: sge(e.mr, 60008, 8), RemoteAddr: at(36000), RKey: p.RKey, CompareAdd: 1<<40 + 5, Swap: 7})
	run(ibvfd.WCOpCompareSwap, ibvfd.SendWR{Op: ibvfd.OpCompareSwap, SGE: sge(e.mr, 60016, 8), RemoteAddr: at(36000), RKey: p.RKey, CompareAdd: 6, Swap: 8})
	var fetched []byte
	for _, v := range []uint64{1 << 40, 1<<40 + 5, 7} {
		fetched = binary.NativeEndian.AppendUint64(fetched, v)
	}
	same("atomics fetched", e.get(t, 60000, 24), fetched)
	same("atomics left", p.get(t, 36000, 8), binary.NativeEndian.AppendUint64(nil, 7))
	run(ibvfd.WCOpWrite,
		ibvfd.SendWR{Op: ibvfd.OpRead, SGE: sge(e.mr, 61000, 2000), RemoteAddr: at(40000), RKey: p.RKey},
		ibvfd.SendWR{Op: ibvfd.OpWrite, Flags: ibvfd.SendFence, SGE: sge(e.mr, 61000, 2000), RemoteAddr: at(37000), RKey: p.RKey})
	same("fenced WRITE of what was READ", p.get(t, 37000, 2000), data[5000:7000])

	if ours == hostSpec {
		run(ibvfd.WCOpWrite, ibvfd.SendWR{Op: ibvfd.OpWrite, Flags: ibvfd.SendInline, SGE: sge(e.mr, 50, 64), RemoteAddr: at(39500), RKey: p.RKey})
		same("inline WRITE", p.get(t, 39500, 64), data[50:114])
	}
	same("the rest", p.get(t, 10003, 9997), make([]byte, 9997))
}

// A process that is killed in the middle leaves a peer whose retries end, and
// nothing in the kernel.
func TestVMPeerKilled(t *testing.T) {
	pd := openPD(t)
	e, p := newEnd(t, pd, hostSpec), startPeer(t, exporter)
	local := e.qp.Local()
	p.do(t, order{Connect: &local})
	if err := e.qp.Connect(p.Endpoint, ibvfd.ConnectAttr{Timeout: 10, RetryCount: 3}); err != nil {
		t.Fatal(err)
	}
	wr := ibvfd.SendWR{ID: 1, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: sge(e.mr, 0, placeSize), RemoteAddr: p.Addr, RKey: p.RKey}
	post(t, e.qp, wr)
	p.kill()
	for range 1000 {
		c := one(t, e.cq)
		if c.Err() != nil {
			if c.Status != ibvfd.WCRetryExcErr && c.Status != ibvfd.WCRemAccessErr {
				t.Errorf("%v, want %v", c.Status, ibvfd.WCRetryExcErr)
			}
			return
		}
		post(t, e.qp, wr)
	}
	t.Error("a killed peer answers still")
}
