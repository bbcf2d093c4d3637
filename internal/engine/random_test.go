// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// contest is two endpoints that carry out random operations on each other's memory, several at
// a time, and the expected bytes of that memory: operations are applied to this model when
// they are posted. Operations whose order the package does not guarantee are kept apart by a
// fence or by waiting; all others run freely. The seed alone determines the operations; the
// NIC also determines how many of them are under way at once.
type contest struct {
	t      testing.TB
	r      *rand.Rand // chooses the operations and their order
	luck   *rand.Rand // chooses when to take completions
	shape  layouttest.Shape
	side   [2]*side
	strict bool // shared memory keeps the order of writes

	flying []*flight // under way, in the order of their numbers
	last   int       // number of the latest
	posted int       // number of operations posted, without receives
	deck   []int     // moves to come
	done   map[string]int
	log    []note // the latest notes
}

func newContest(t testing.TB, r *rand.Rand, s layouttest.Shape) *contest {
	return &contest{t: t, r: r, luck: rand.New(rand.NewPCG(r.Uint64(), 0)), shape: s, done: map[string]int{}}
}

// side is one of the two endpoints.
type side struct {
	e     *Endpoint        // nil: in another process, which carries out no operations
	peer  operation.Peer   // the other side
	mine  []*memory.Buffer // nil in another process
	bytes [][]byte         // the expected bytes
	far   *memory.RemoteBuffer
	// In order: receives for which nothing was sent, all receives, and all other operations
	// that complete in order.
	ready, received, sent []*flight
}

// flight is an operation under way.
type flight struct {
	number int
	by     int // the side that has posted it
	op     operation.Kind
	silent bool
	want   operation.Completion
	reads  [2]set // of the two sides' memory
	writes [2]set
	seen   bool // by the other side: a later message has arrived

	// Of a receive.
	to     spot
	sender int  // the number of the operation that sends to it
	parted bool // in several work requests; the length of the last one is known
}

// set is a set of bytes of one side's memory.
type set []uint64

func (s set) with(at []int, size int) set {
	if len(at) > 0 && s == nil {
		s = make(set, (size+63)/64)
	}
	for _, i := range at {
		s[i/64] |= 1 << (i % 64)
	}
	return s
}

func (s set) has(i int) bool { return s != nil && s[i/64]>>(i%64)&1 != 0 }

func (s set) meets(o set) bool {
	for i := range min(len(s), len(o)) {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// against reports whether the order of the two operations matters to a side's memory.
func (f *flight) against(g *flight, side int) bool {
	return f.writes[side].meets(g.writes[side]) || f.writes[side].meets(g.reads[side]) || f.reads[side].meets(g.writes[side])
}

func (c *contest) get(side int, at []int) []byte {
	p := make([]byte, len(at))
	for i, k := range at {
		p[i] = c.side[side].bytes[k/int(c.shape.Room)][k%int(c.shape.Room)]
	}
	return p
}

func (c *contest) put(side int, at []int, p []byte) {
	for i, b := range p {
		k := at[i]
		c.side[side].bytes[k/int(c.shape.Room)][k%int(c.shape.Room)] = b
	}
}

// free prepares the posting of an operation: it waits for operations that must end before, and
// reports whether a fence is needed for the others. If ok is false the operation cannot be
// posted.
func (c *contest) free(f *flight) (fence, ok bool) {
	for {
		fence = false
		wait := false
		for _, g := range c.flying {
			here, there := f.against(g, f.by), f.against(g, 1-f.by)
			switch {
			case !here && !there:
			case g.op == operation.Recv && g.sender == 0 || c.side[g.by].e == nil:
				return false, false // not soon
			case here || g.by != f.by:
				wait = true // the NIC owns memory until the completion; operations of two sides have no order
			case !c.strict || f.op == operation.Read || g.op == operation.Read:
				fence = true
			}
		}
		if !wait {
			return fence, true
		}
		if !c.reap() {
			return false, false
		}
	}
}

// quiet is free for operations that a fence cannot delay.
func (c *contest) quiet(f *flight) bool {
	for {
		fence, ok := c.free(f)
		if !ok || !fence {
			return ok
		}
		c.reap()
	}
}

// post adds a flight, which the caller then carries out.
func (c *contest) post(f *flight, what string, args ...any) {
	c.last++
	f.number, f.want.Op = c.last, f.op
	c.flying = append(c.flying, f)
	s := c.side[f.by]
	if f.op != operation.Recv {
		c.posted++
	}
	switch f.op {
	case operation.Recv:
		s.ready, s.received = append(s.ready, f), append(s.received, f)
	case operation.Read:
	default:
		s.sent = append(s.sent, f)
	}
	c.note("%d: %s posts %v: %v", f.number, sideNames[f.by], f.op, note{what, args})
}

var sideNames = [2]string{"a", "b"}

// note is an event; its text is made when it is printed.
type note struct {
	format string
	args   []any
}

func (n note) String() string { return fmt.Sprintf(n.format, n.args...) }

const mostNotes = 60

func (c *contest) note(format string, args ...any) {
	if len(c.log) == 2*mostNotes {
		c.log = c.log[:copy(c.log, c.log[mostNotes:])]
	}
	c.log = append(c.log, note{format, args})
}

func (c *contest) fatal(format string, args ...any) {
	c.t.Helper()
	var story []string
	for _, n := range c.log[max(0, len(c.log)-mostNotes):] {
		story = append(story, n.String())
	}
	c.t.Fatalf("%s\nafter\n%s", fmt.Sprintf(format, args...), strings.Join(story, "\n"))
}

// ok fails the test on an error of a call that posts.
func (c *contest) ok(err error) {
	c.t.Helper()
	if err != nil {
		c.fatal("%v", err)
	}
}

// reap takes completions, and waits if there are none; false if none will come.
func (c *contest) reap() bool {
	c.t.Helper()
	got := false
	for by, s := range c.side {
		got = s.e != nil && c.completed(by, s.e.Poll) || got
	}
	if got {
		return true
	}
	// Wait first for operations that were sent: the other side's receives depend on them.
	speaks := [3]func(f *flight) bool{
		func(f *flight) bool { return f.op != operation.Recv && !f.silent },
		func(f *flight) bool { return f.silent },
		func(f *flight) bool { return f.op == operation.Recv && f.sender != 0 },
	}
	for i, does := range speaks {
		for by, s := range c.side {
			if s.e == nil || !slices.ContainsFunc(c.flying, func(f *flight) bool { return f.by == by && does(f) }) {
				continue
			}
			if i == 1 { // a later operation in the same queue shows that it has completed
				f := &flight{by: by, op: operation.Write}
				c.post(f, "nothing")
				c.ok(s.e.Write(memory.Span{}, s.peer, memory.RemoteSpan{}, f.number))
			}
			c.completed(by, func(dst []operation.Completion) (int, error) {
				ctx, cancel := context.WithTimeout(context.Background(), bound)
				defer cancel()
				return s.e.Wait(ctx, dst)
			})
			return true
		}
	}
	return false
}

// completed takes completions of one side.
func (c *contest) completed(by int, from func([]operation.Completion) (int, error)) bool {
	c.t.Helper()
	var done [4]operation.Completion
	n, err := from(done[:1+c.luck.IntN(len(done))])
	if err != nil {
		c.fatal("no completion of %s: %v", sideNames[by], err)
	}
	for _, d := range done[:n] {
		c.landed(by, d)
	}
	return n > 0
}

// landed compares a completion with its flight.
func (c *contest) landed(by int, d operation.Completion) {
	c.t.Helper()
	s := c.side[by]
	i := slices.IndexFunc(c.flying, func(f *flight) bool { return f.by == by && f.number == d.Context && !f.silent })
	if i < 0 {
		c.fatal("a completion of nothing that is under way: %+v", d)
	}
	f := c.flying[i]
	c.note("%d has completed", f.number)
	f.want.Context, f.want.Peer = f.number, s.peer
	if f.parted && d.Len > 0 && d.Len < f.want.Len {
		d.Len = f.want.Len
	}
	if d != f.want {
		c.fatal("completion %+v\nwant       %+v", d, f.want)
	}
	c.remove(f)
	switch f.op {
	case operation.Read: // in any order
	case operation.Recv:
		if s.received[0] != f {
			c.fatal("receive %d has completed before receive %d", f.number, s.received[0].number)
		}
		s.received = s.received[1:]
		for _, g := range c.flying { // all operations that the other side has sent before
			g.seen = g.seen || g.by != by && g.op != operation.Read && g.op != operation.Recv && g.number <= f.sender
		}
		if c.luck.IntN(4) == 0 {
			c.compare(by)
		}
	default:
		for ; s.sent[0] != f; s.sent = s.sent[1:] {
			if !s.sent[0].silent {
				c.fatal("%d has completed before %d", f.number, s.sent[0].number)
			}
			c.remove(s.sent[0])
		}
		s.sent = s.sent[1:]
	}
}

func (c *contest) remove(f *flight) {
	i := slices.Index(c.flying, f)
	c.flying = slices.Delete(c.flying, i, i+1)
}

// compare compares a side's memory, except for bytes that operations under way write.
func (c *contest) compare(side int) {
	c.t.Helper()
	var busy set
	for _, g := range c.flying {
		if g.writes[side] == nil || g.seen && g.by != side {
			continue
		}
		if busy == nil {
			busy = make(set, len(g.writes[side]))
		}
		for i, w := range g.writes[side] {
			busy[i] |= w
		}
	}
	s := c.side[side]
	for i, b := range s.mine {
		want := s.bytes[i]
		for k := 0; k < len(want); {
			if busy.has(c.flat(i, int64(k))) { // it is written while we look
				k++
				continue
			}
			end := k + 1
			for end < len(want) && !busy.has(c.flat(i, int64(end))) {
				end++
			}
			got := make([]byte, end-k)
			if n, err := b.ReadAt(got, int64(k)); n != len(got) || err != nil {
				c.fatal("%s: %d, %v", sideNames[side], n, err)
			}
			for j := range got {
				if got[j] != want[k+j] {
					c.fatal("%s: byte %d of source %d is %#x, want %#x", sideNames[side], k+j, i, got[j], want[k+j])
				}
			}
			k = end
		}
	}
}

// underWay returns the number of operations under way, without receives.
func (c *contest) underWay() (n int) {
	for _, f := range c.flying {
		if f.op != operation.Recv {
			n++
		}
	}
	return n
}

// settle sends to all remaining receives, waits for all operations, and compares every byte.
func (c *contest) settle() {
	c.t.Helper()
	for by := range c.side {
		for len(c.side[1-by].ready) > 0 {
			c.send(by, 0, 0)
		}
	}
	for c.reap() {
	}
	for i, s := range c.side {
		if s.mine != nil {
			c.compare(i)
		}
	}
}

// run carries out steps operations, at most most of them at once.
func (c *contest) run(steps, most int) {
	c.t.Helper()
	for range steps {
		by := 0
		if c.side[1].e != nil {
			by = c.r.IntN(2)
		}
		for c.underWay() >= most && c.reap() {
		}
		for moved := false; !moved; {
			if len(c.deck) == 0 {
				c.deck = c.r.Perm(len(moves))
			}
			m := &moves[c.deck[0]]
			c.deck = c.deck[1:]
			was := c.posted
			if moved = m.do(c, by); moved {
				if c.posted == was && m.name != "the CPU" {
					c.fatal("%q has posted nothing", m.name)
				}
				c.done[m.name]++
			}
		}
	}
	c.settle()
}

// mostMore is the number of further chances for kinds of operations that were never done. With
// nothing else under way each kind is refused at most 7 times in 8; the CPU's is, as it takes
// one layout only. By chance less than one contest in 10^10 lacks one of them.
const mostMore = 200

// every makes the contest carry out each kind of operation: more carries out some, and kinds
// that were never done come first. The test fails if one was never done.
func (c *contest) every(more func()) {
	c.t.Helper()
	for range mostMore {
		c.deck = c.deck[:0]
		for i := range moves {
			if c.done[moves[i].name] == 0 {
				c.deck = append(c.deck, i)
			}
		}
		if len(c.deck) == 0 {
			break
		}
		more()
	}
	for _, name := range allMoves {
		if c.done[name] == 0 {
			c.t.Errorf("%q was never done: %v", name, c.done)
		}
	}
}
