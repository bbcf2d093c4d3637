// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
)

// party is one end of a connection, of ibvfd's queue pairs.
type party struct {
	traffic
	closers
	mem    []byte
	mr     *ibvfd.MR
	qp     *ibvfd.QP
	sent   *ibvfd.CQ
	came   *ibvfd.CQ
	remote hello
}

// hello is the first message of each side to the other.
type hello struct {
	Endpoint ibvfd.Endpoint
	Addr     uint64
	RKey     uint32
}

func newParty(device string, t traffic) (s *party, err error) {
	s = &party{traffic: t}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	c, err := ibvfd.Open(device)
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, c)
	gid, err := c.QueryGID(1, t.gid)
	if err != nil {
		return s, err
	}
	pd, err := c.AllocPD()
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, pd)
	// One half for sending and one for receiving, as in perftest's buffer.
	page := os.Getpagesize()
	half := (t.size + page - 1) / page * page
	host, err := hostmem.Alloc(2 * half)
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, host)
	s.mem = host.Bytes()
	s.mr, err = pd.RegMR(ibvfd.MRAttr{
		Kind: ibvfd.HostMemory, Host: s.mem, Length: uint64(len(s.mem)), Owner: host,
		Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite,
	})
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.mr)
	if s.sent, err = c.CreateCQ(t.depth); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.sent)
	if s.came, err = c.CreateCQ(trafficRecvs); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.came)
	s.qp, err = pd.CreateQP(ibvfd.QPAttr{
		Type: ibvfd.RC, SendCQ: s.sent, RecvCQ: s.came, SendDepth: t.depth, RecvDepth: trafficRecvs, GID: &gid,
	})
	if err == nil {
		s.closers = append(s.closers, s.qp)
	}
	return s, err
}

// serve waits for a client, and does its part.
func (s *party) serve(port string) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	conn, err := l.Accept()
	_ = l.Close()
	if err != nil {
		return err
	}
	defer conn.Close()
	tcp := newLine(conn)
	if err := s.meet(tcp); err != nil {
		return err
	}
	switch {
	case s.latency && s.op == "write":
		_, err = s.bounceWrites(false)
	case s.latency && s.op == "send":
		_, err = s.bounceSends(false)
	case s.op == "send":
		err = s.receive()
	}
	return errors.Join(err, s.sync(tcp)) // the client reads from us, or writes
}

// call runs the client's part.
func (s *party) call(addr string) (result float64, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	tcp := newLine(conn)
	if err := s.meet(tcp); err != nil {
		return 0, err
	}
	switch {
	case !s.latency:
		result, err = s.stream()
	case s.op == "write":
		result, err = s.bounceWrites(true)
	case s.op == "send":
		result, err = s.bounceSends(true)
	default:
		result, err = s.readOneByOne()
	}
	return result, errors.Join(err, s.sync(tcp))
}

// meet connects the queue pairs, and returns when both sides are ready.
func (s *party) meet(tcp line) error {
	ours := hello{s.qp.Local(), s.mr.IOVA(), s.mr.RKey()}
	if err := json.NewEncoder(tcp).Encode(ours); err != nil {
		return err
	}
	theirs, err := tcp.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(theirs, &s.remote); err != nil {
		return err
	}
	opt := ibvfd.ConnectAttr{MTU: s.mtu, MaxRead: uint8(s.reads)}
	if err := s.qp.Init(opt); err != nil {
		return err
	}
	if s.op == "send" { // receives are taken from the state INIT on
		for range min(trafficRecvs, s.count) {
			if err := s.postRecv(); err != nil {
				return err
			}
		}
	}
	if err := s.qp.Connect(s.remote.Endpoint, opt); err != nil {
		return err
	}
	return s.sync(tcp)
}

// sync returns when the other side has come here too.
func (s *party) sync(tcp line) error {
	if _, err := tcp.Write([]byte{'.'}); err != nil {
		return err
	}
	_, err := tcp.ReadByte()
	return err
}

// line is a TCP connection that is read by the line, and by the byte.
type line struct {
	*bufio.Reader
	io.Writer
}

func newLine(c net.Conn) line { return line{bufio.NewReader(c), c} }

// local is what goes out; incoming is where it lands on the other side.
func (s *party) local() []ibvfd.SGE {
	return []ibvfd.SGE{{Addr: s.mr.IOVA(), Length: uint32(s.size), LKey: s.mr.LKey()}}
}

func (s *party) incoming() uint64 { return uint64(len(s.mem) / 2) }

func (s *party) postRecv() error {
	_, err := s.qp.PostRecv([]ibvfd.RecvWR{{SGE: []ibvfd.SGE{{Addr: s.mr.IOVA() + s.incoming(), Length: uint32(s.size), LKey: s.mr.LKey()}}}})
	return err
}

// requests are n work requests, the last of which makes a completion.
func (s *party) requests(n int) []ibvfd.SendWR {
	wrs := make([]ibvfd.SendWR, n)
	for i := range wrs {
		wrs[i] = ibvfd.SendWR{Op: opcodes[s.op], SGE: s.local(), RemoteAddr: s.remote.Addr + s.incoming(), RKey: s.remote.RKey}
	}
	wrs[n-1].Flags = ibvfd.SendSignaled
	return wrs
}

// stream keeps the queue full, and returns messages a second.
func (s *party) stream() (float64, error) {
	wrs, wc := s.requests(s.batch), make([]ibvfd.WC, pollBatch)
	start := time.Now()
	for posted, done := 0, 0; done < s.count; {
		for posted < s.count && posted-done+s.batch <= s.depth {
			if _, err := s.qp.PostSend(wrs); err != nil {
				return 0, err
			}
			posted += s.batch
		}
		n, err := taken(s.sent, wc)
		if err != nil {
			return 0, err
		}
		done += n * s.batch
	}
	return float64(s.count) / time.Since(start).Seconds(), nil
}

// taken polls once; completions that are not good are an error.
func taken(cq *ibvfd.CQ, wc []ibvfd.WC) (int, error) {
	n, err := cq.Poll(wc)
	for i := range wc[:n] {
		if wc[i].Status != ibvfd.WCSuccess {
			return n, wc[i].Err()
		}
	}
	return n, err
}

// one polls until one work request is done.
func one(cq *ibvfd.CQ, wc []ibvfd.WC) error {
	for {
		if n, err := taken(cq, wc[:1]); n > 0 || err != nil {
			return err
		}
	}
}

// receive takes as many messages as the client sends.
func (s *party) receive() error {
	wc := make([]ibvfd.WC, pollBatch)
	again := []ibvfd.RecvWR{{SGE: []ibvfd.SGE{{Addr: s.mr.IOVA() + s.incoming(), Length: uint32(s.size), LKey: s.mr.LKey()}}}}
	for posted, came := min(trafficRecvs, s.count), 0; came < s.count; {
		n, err := taken(s.came, wc)
		if err != nil {
			return err
		}
		came += n
		for range n {
			if posted < s.count {
				if _, err := s.qp.PostRecv(again); err != nil {
					return err
				}
				posted++
			}
		}
	}
	return nil
}

// readOneByOne is the time of a READ.
func (s *party) readOneByOne() (float64, error) {
	wrs, wc, at := s.requests(1), make([]ibvfd.WC, 1), make(times, s.count)
	for i := range at {
		at[i] = clock()
		if _, err := s.qp.PostSend(wrs); err != nil {
			return 0, err
		}
		if err := one(s.sent, wc); err != nil {
			return 0, err
		}
	}
	return at.median(1), nil
}

// bounceWrites is the time of a WRITE one way: each side sees the other's in
// memory and answers it.
func (s *party) bounceWrites(first bool) (float64, error) {
	wrs, wc, at := s.requests(1), make([]ibvfd.WC, 1), make(times, s.count)
	last := s.size - 1
	for i := range at {
		if !first || i > 0 {
			number := i // of the message that is waited for
			if !first {
				number++
			}
			awaitByte(s.mem[s.incoming():], last, byte(number))
		}
		at[i] = clock()
		s.mem[last] = byte(i + 1)
		if _, err := s.qp.PostSend(wrs); err != nil {
			return 0, err
		}
		if err := one(s.sent, wc); err != nil {
			return 0, err
		}
	}
	if first { // the answer to the last
		awaitByte(s.mem[s.incoming():], last, byte(s.count))
	}
	return at.median(2), nil
}

// bounceSends is the same with messages.
func (s *party) bounceSends(first bool) (float64, error) {
	wrs, wc, at := s.requests(1), make([]ibvfd.WC, 1), make(times, s.count)
	posted := min(trafficRecvs, s.count)
	take := func() error {
		if err := one(s.came, wc); err != nil || posted == s.count {
			return err
		}
		posted++
		return s.postRecv()
	}
	for i := range at {
		if !first || i > 0 {
			if err := take(); err != nil {
				return 0, err
			}
		}
		at[i] = clock()
		if _, err := s.qp.PostSend(wrs); err != nil {
			return 0, err
		}
		if err := one(s.sent, wc); err != nil {
			return 0, err
		}
	}
	if first {
		if err := take(); err != nil {
			return 0, err
		}
	}
	return at.median(2), nil
}
