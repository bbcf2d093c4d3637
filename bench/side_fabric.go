// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"

	"github.com/gpurdma/gpurdma"
)

// program is one end of a connection as an event loop has it that imports package gpurdma.
type program struct {
	traffic
	closers
	fabric  *gpurdma.Fabric
	queue   *gpurdma.Queue
	cfg     gpurdma.Config
	out, in *gpurdma.Buffer // what goes out, or is read into, and what the peer writes or reads
	conn    *gpurdma.Conn
	ops     []gpurdma.Op
	done    []gpurdma.Completion
	last    [1]byte
}

func newProgram(device string, t traffic) (p *program, err error) {
	// A completion of perftest's stands for a batch, and one of a Queue for an operation.
	p = &program{traffic: t, done: make([]gpurdma.Completion, pollBatch*t.batch)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	gid, err := t.gidOf(device)
	if err != nil {
		return p, err
	}
	p.cfg = gpurdma.Config{Port: 1, GID: onlyGID(gid), MTU: t.mtu, Depth: t.depth}
	if p.fabric, err = gpurdma.Open(device); err != nil {
		return p, err
	}
	p.closers = append(p.closers, p.fabric)
	for _, b := range []**gpurdma.Buffer{&p.out, &p.in} {
		if *b, err = p.fabric.Alloc(context.Background(), "host", int64(t.size)); err != nil {
			return p, err
		}
		p.closers = append(p.closers, *b)
	}
	p.queue = p.fabric.NewQueue(t.depth)
	p.closers = append(p.closers, p.queue)
	return p, nil
}

// meet returns when both sides know each other's memory.
func (p *program) meet(ctx context.Context) error {
	p.closers = append(p.closers, p.conn)
	if err := p.conn.Export("in", p.in.All(), gpurdma.ReadWrite); err != nil {
		return err
	}
	theirs, err := p.conn.Import(ctx, "in")
	if err != nil {
		return err
	}
	kind := gpurdma.OpWrite
	if p.op == "read" {
		kind = gpurdma.OpRead
	}
	p.ops = make([]gpurdma.Op, p.batch)
	for i := range p.ops {
		p.ops[i] = gpurdma.Op{Kind: kind, Local: p.out.All(), Remote: theirs}
	}
	return nil
}

// serve waits for a client, does its part, and returns when the client has closed the connection.
func (p *program) serve(port string) error {
	ctx := context.Background()
	l, err := p.fabric.Listen(net.JoinHostPort("127.0.0.1", port), p.cfg)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, l)
	if p.conn, err = l.Accept(ctx); err != nil {
		return err
	}
	if err := p.meet(ctx); err != nil {
		return err
	}
	if p.latency && p.op == "write" {
		if _, err := p.bounce(false); err != nil {
			return err
		}
	}
	<-p.conn.Done()
	return nil
}

// call runs the client's part.
func (p *program) call(addr string) (result float64, err error) {
	ctx := context.Background()
	if p.conn, err = p.fabric.Dial(ctx, addr, p.cfg); err != nil {
		return 0, err
	}
	if err := p.meet(ctx); err != nil {
		return 0, err
	}
	switch {
	case !p.latency:
		return p.stream()
	case p.op == "write":
		return p.bounce(true)
	}
	return p.readOneByOne()
}

func (p *program) post() error {
	_, err := p.queue.Post(p.conn, p.ops)
	return err
}

// poll polls once, and returns how many operations have ended.
func (p *program) poll() (int, error) {
	n, err := p.queue.Poll(p.done)
	return p.good(n, err)
}

// wait waits, and returns how many operations have ended.
func (p *program) wait() (int, error) {
	n, err := p.queue.Wait(context.Background(), p.done)
	return p.good(n, err)
}

func (p *program) good(n int, err error) (int, error) {
	for i := range p.done[:n] {
		if err := p.done[i].Err; err != nil {
			return n, err
		}
	}
	return n, err
}

// one posts, and polls until that has ended.
func (p *program) one() error {
	if err := p.post(); err != nil {
		return err
	}
	for {
		if n, err := p.poll(); n > 0 || err != nil {
			return err
		}
	}
}

// stream returns messages a second. The first operations of a process take its first page faults, which
// are several times what the C program has: they are not counted.
func (p *program) stream() (float64, error) {
	if err := p.move(p.depth); err != nil {
		return 0, err
	}
	start := clock()
	if err := p.move(p.count); err != nil {
		return 0, err
	}
	return float64(p.count) / (clock() - start).Seconds(), nil
}

// move keeps the queue full, and waits as an event loop does: a program that only polls keeps the
// processor from the NIC's software until its turn is over.
func (p *program) move(count int) error {
	for posted, done := 0, 0; done < count; {
		for posted < count && posted-done+p.batch <= p.depth {
			if err := p.post(); err != nil {
				return err
			}
			posted += p.batch
		}
		n, err := p.wait()
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

// readOneByOne is the time of a read.
func (p *program) readOneByOne() (float64, error) {
	at := make(times, p.count)
	for i := range at {
		at[i] = clock()
		if err := p.one(); err != nil {
			return 0, err
		}
	}
	return at.median(1), nil
}

// bounce is the time of a write one way: each side sees the other's in memory and
// answers it.
func (p *program) bounce(first bool) (float64, error) {
	await := func(number int) error {
		for {
			if _, err := p.in.ReadAt(p.last[:], int64(p.size-1)); err != nil || p.last[0] == byte(number) {
				return err
			}
		}
	}
	at := make(times, p.count)
	for i := range at {
		var err error
		switch {
		case !first:
			err = await(i + 1)
		case i > 0:
			err = await(i)
		}
		if err != nil {
			return 0, err
		}
		at[i] = clock()
		p.last[0] = byte(i + 1)
		if _, err := p.out.WriteAt(p.last[:], int64(p.size-1)); err != nil {
			return 0, err
		}
		if err := p.one(); err != nil {
			return 0, err
		}
	}
	if first { // the answer to the last
		if err := await(p.count); err != nil {
			return 0, err
		}
	}
	return at.median(2), nil
}
