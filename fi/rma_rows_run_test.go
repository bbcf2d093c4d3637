// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// rmaEvent is a completion in libfabric's form.
type rmaEvent struct {
	Context int
	Flags   string
	Data    uint64
	Len     int64  // if there is data
	Status  int    // of verbs, if it failed
	Err     string // and libfabric's code
}

// rmaOutcome is the result of a row.
type rmaOutcome struct {
	Posts         []string // "OK", or the error
	Near, Far     []rmaEvent
	Dead          bool   // the connection has ended
	Local, Remote string // hashes of the buffers
}

// String returns the fields that readers of a table need.
func (o rmaOutcome) String() string {
	s := strings.Join(o.Posts, ", ")
	for _, e := range o.Near {
		if e.Status != 0 {
			s += fmt.Sprintf("; status %d", e.Status)
		} else {
			s += "; " + e.Flags
		}
	}
	for _, e := range o.Far {
		s += fmt.Sprintf("; peer: %s %d", e.Flags, e.Data)
	}
	if o.Dead {
		s += "; dead"
	}
	return s
}

// full returns all fields.
func (o rmaOutcome) full() string {
	return fmt.Sprintf("%q %+v %+v dead=%v %s %s", o.Posts, o.Near, o.Far, o.Dead, o.Local, o.Remote)
}

// rmaPart is a range of local or remote memory.
type rmaPart struct {
	key    byte
	lie    bool
	off, n int64
}

func rmaParts(t testing.TB, words string) (list []rmaPart) {
	for w := range strings.SplitSeq(words, ",") {
		p := rmaPart{}
		if key, rest, ok := strings.Cut(w, ":"); ok {
			p.key, p.lie, w = key[0], len(key) > 1, rest
		}
		if n, err := fmt.Sscanf(w, "%d+%d", &p.off, &p.n); n != 2 {
			t.Fatal(words, err)
		}
		list = append(list, p)
	}
	return list
}

// hasData reports whether the operation has data for the peer.
func (o *rmaOp) hasData() bool {
	return strings.HasSuffix(o.call, "data") || o.call == "fi_writemsg" && o.flags&RemoteCQData != 0
}

// Contexts of a row begin with first; receives have others.
const (
	rmaMark = 0xffff
	rmaRecv = 1000
)

// ourRMA runs rows by two endpoints of this package.
type ourRMA struct {
	t              testing.TB
	s              setting
	local, remote  kind
	inject         int
	connectionless bool

	w             *world
	selective     bool
	mine, theirs  *MR
	scratch, mark *MR
	keys          map[byte]*Key // 'm': of mark
	injected      [][]byte
}

func (o *ourRMA) open(selective bool) {
	if o.w == nil || o.selective != selective {
		opt := EndpointOptions{InjectSize: o.inject, SelectiveCompletion: selective}
		if o.connectionless {
			opt.AutoReceive = 4
		}
		o.w, o.selective = &world{t: o.t, a: o.s.end(o.t, opt), b: o.s.end(o.t, opt)}, selective
		o.mine, o.scratch = o.local.make(o.t, o.w.a, rmaSize), hostKind.make(o.t, o.w.a, 8)
		o.theirs, o.mark = o.remote.make(o.t, o.w.b, rmaSize), hostKind.make(o.t, o.w.b, 8)
	}
	share := o.w.share
	if o.connectionless {
		addr := must(o.w.b.Listen("127.0.0.1:0"))(o.t)
		o.w.ab = must(o.w.a.Insert(addr.String()))(o.t)
		share = func(v IOV, access Flags) *Key {
			k := must(o.w.b.Key(v, AddrUnspec, access))(o.t)
			got := new(Key)
			o.w.ok(got.UnmarshalBinary(must(k.MarshalBinary())(o.t)))
			return got
		}
	} else {
		o.w.connect()
	}
	o.keys = map[byte]*Key{
		'a': share(o.theirs.All(), RemoteRead|RemoteWrite),
		'r': share(o.theirs.All(), RemoteRead),
		'w': share(o.theirs.All(), RemoteWrite),
		'm': share(o.mark.All(), RemoteWrite),
	}
	o.keys['x'] = forged(o.t, o.keys['a'], func(f *forgery) { f.key ^= 0xff })
}

// fill sets the buffers to the initial bytes of each row.
func (o *ourRMA) fill() {
	here, there := make([]byte, rmaSize), make([]byte, rmaSize)
	for i := range here {
		here[i] = byte(i*31+7) ^ byte(i>>8)
		there[i] = byte(i*17+101) ^ byte(i>>7)
	}
	for b, p := range map[*MR][]byte{o.mine: here, o.theirs: there} {
		if _, err := b.WriteAt(p, 0); err != nil {
			o.t.Fatal(err)
		}
	}
}

// change inverts local memory, including injected bytes.
func (o *ourRMA) change() {
	p := content(o.t, o.mine)
	for _, p := range append(o.injected, p) {
		for i := range p {
			p[i] ^= 0xff
		}
	}
	if _, err := o.mine.WriteAt(p, 0); err != nil {
		o.t.Fatal(err)
	}
}

func (o *ourRMA) run(r rmaRow, first int) (out rmaOutcome) {
	o.fill()
	for i, op := range r.ops {
		if op.hasData() && !o.connectionless {
			o.w.ok(o.w.b.Recv(IOV{}, o.w.ba, rmaRecv+first+i))
		}
	}
	for i := range r.ops {
		out.Posts = append(out.Posts, postName(o.post(&r.ops[i], first+i)))
		if r.ops[i].change {
			o.change()
		}
	}
	o.injected = nil
	// A fenced write after them distinguishes operations without completion from late ones.
	err := o.w.a.WriteMsg(MsgRMA{
		IOV: []IOV{o.scratch.All()}, Addr: o.w.ab, RMAIOV: []RMAIOV{o.keys['m'].All()}, Context: rmaMark,
	}, Fence|Completion)
	out.Dead = err != nil
	for marked := err != nil; ; {
		c, ok := o.w.poll(o.w.a)
		if !ok {
			if marked {
				break
			}
			c = o.w.wait(o.w.a)
		}
		if c.context() == rmaMark {
			marked, out.Dead = true, c.failed != nil
			continue
		}
		out.Near = append(out.Near, o.event(c))
	}
	for {
		c, ok := o.w.poll(o.w.b)
		if !ok {
			break
		}
		if c.failed == nil { // skip receives that a lost connection has flushed
			out.Far = append(out.Far, o.event(c))
		}
	}
	out.Local, out.Remote = fnv1a(content(o.t, o.mine)), fnv1a(content(o.t, o.theirs))
	return out
}

func fnv1a(p []byte) string {
	h := fnv.New64a()
	h.Write(p)
	return fmt.Sprintf("%016x", h.Sum64())
}

// event returns a completion in the form in which the C program reports it.
func (o *ourRMA) event(c completion) rmaEvent {
	e := rmaEvent{}
	e.Context, _ = c.context().(int)
	if c.failed != nil {
		e.Status, e.Err = c.failed.ProvErrno, errno.Name(c.failed.Err)
		if e.Status == 0 {
			o.t.Errorf("an error without a status: %v", c.failed)
		}
		return e
	}
	e.Flags = c.Flags.String()
	if c.Flags&RemoteCQData != 0 {
		e.Data, e.Len = c.Data, c.Len
	}
	return e
}

func postName(err error) string {
	switch {
	case err == nil:
		return "OK"
	case errors.Is(err, failure.ErrRange):
		return "ErrRange"
	case errors.Is(err, failure.ErrLimit):
		return "ErrLimit"
	}
	return errno.Name(Code(err))
}

func (o *ourRMA) post(op *rmaOp, context int) error {
	var local []IOV
	for _, p := range rmaParts(o.t, op.local) {
		local = append(local, IOV{o.mine, p.off, p.n})
	}
	var remote []RMAIOV
	for _, p := range rmaParts(o.t, op.remote) {
		k := o.keys[p.key]
		if p.lie {
			k = forged(o.t, k, func(f *forgery) { f.access, f.length = allAccess, f.length+1<<20 })
		}
		remote = append(remote, k.Part(p.off, p.n))
	}
	e, peer := o.w.a, o.w.ab
	msg := MsgRMA{IOV: local, Addr: peer, RMAIOV: remote, Data: op.data, Context: context}
	switch op.call {
	case "fi_read":
		return e.Read(local[0], peer, remote[0], context)
	case "fi_readv":
		return e.Readv(local, peer, remote[0], context)
	case "fi_readmsg":
		return e.ReadMsg(msg, op.flags)
	case "fi_write":
		return e.Write(local[0], peer, remote[0], context)
	case "fi_writev":
		return e.Writev(local, peer, remote[0], context)
	case "fi_writemsg":
		return e.WriteMsg(msg, op.flags)
	case "fi_writedata":
		return e.WriteData(local[0], op.data, peer, remote[0], context)
	}
	p := make([]byte, local[0].Length)
	if _, err := o.mine.ReadAt(p, local[0].Offset); err != nil {
		o.t.Fatal(err)
	}
	o.injected = append(o.injected, p)
	if op.call == "fi_inject_writedata" {
		return e.InjectWriteData(p, op.data, peer, remote[0])
	}
	return e.InjectWrite(p, peer, remote[0])
}

// TestRMARows runs the rows without libfabric. It checks that bytes move only if they should,
// and that only rows that differ from libfabric are refused.
func TestRMARows(t *testing.T) {
	for _, x := range rmaSessions {
		t.Run(x.name, func(t *testing.T) {
			s := inMemory(t)
			o := &ourRMA{t: t, s: s, local: hostKind, remote: s.kinds[1], inject: rmaInject, connectionless: x.connectionless}
			o.open(x.selective)
			for i, r := range x.rows {
				out := o.run(r, 10*i)
				t.Logf("%s: %v", r.name, out)
				o.checkMoved(t, r, out)
				d, differs := rmaDifferences[x.name+": "+r.name]
				if differs && out.String() != d.ours {
					t.Errorf("%s: %v, in the table of differences it is %s", r.name, out, d.ours)
				}
				if !differs && slices.ContainsFunc(out.Posts, func(p string) bool { return p != "OK" }) {
					t.Errorf("%s: %v, which is in no table", r.name, out)
				}
				if out.Dead {
					o.open(x.selective)
				}
			}
		})
	}
}

// checkMoved compares whether bytes have changed with whether they should.
func (o *ourRMA) checkMoved(t *testing.T, r rmaRow, out rmaOutcome) {
	t.Helper()
	for _, op := range r.ops {
		if op.change {
			o.injected = nil
			return // bytes have changed, as expected
		}
	}
	o.fill()
	was := rmaOutcome{Local: fnv1a(content(o.t, o.mine)), Remote: fnv1a(content(o.t, o.theirs))}
	moved := was.Local != out.Local || was.Remote != out.Remote
	refused := false
	for _, p := range out.Posts {
		refused = refused || p != "OK"
	}
	if moved == (r.still || refused) {
		t.Errorf("%s: bytes moved: %v: %v", r.name, moved, out)
	}
}

// rmaSession is a list of rows that share endpoints.
type rmaSession struct {
	name                      string
	selective, connectionless bool
	rows                      []rmaRow
}

var rmaSessions = []rmaSession{
	{"connected", false, false, plainRows},
	{"selective", true, false, selectiveRows},
	{"connectionless", false, true, connectionlessRows},
}
