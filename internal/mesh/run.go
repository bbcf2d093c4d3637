// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/nodelist"
	"github.com/gpurdma/gpurdma/internal/mesh/schedule"
)

// Config is what a coordinator is given.
type Config struct {
	Nodes     []nodelist.Node
	Protect   control.Protection
	Release   string // of the program
	Plan      control.Plan
	SameRail  bool          // only NICs at the same place of their nodes are pairs
	Parallel  int           // pairs at once, at most; 0: as many as there are free NICs for
	GiveUp    int           // pairs after which a NIC that has reached none is not tried any more; 0: never
	Wait      time.Duration // for workers that are not there yet
	Silence   time.Duration // after which a silent worker is lost; default 10 s
	Tolerance float64       // the part by which a node may be slower than its peers
	// Progress, if not nil, is called when a pair is done, or was given up.
	Progress func(done, total int)
	Tell     func(format string, args ...any) // says what happens to nodes
}

// pingEvery is often enough for workers, which give a silent coordinator up.
const pingEvery = 3 * time.Second

// dials is the number of workers that are greeted at once.
const dials = 64

// Run measures all pairs. When ctx ends, it ends what is measured, and returns what there is.
func Run(ctx context.Context, c Config) *Result {
	began := time.Now()
	c.Silence = cmp.Or(c.Silence, 10*time.Second)
	r := &run{Config: c, result: &Result{
		Nodes: make([]Node, len(c.Nodes)), NICs: []NIC{}, Links: []Link{},
		Plan: Plan{Size: c.Plan.Size, Depth: c.Plan.Depth, Volume: c.Plan.Volume, Time: c.Plan.Time, Timeout: c.Plan.Timeout, SameRail: c.SameRail},
	}, members: make([]*member, len(c.Nodes)), lost: make(chan *member, len(c.Nodes)), done: make(chan done)}
	r.gather(ctx)
	r.measure(ctx)
	for _, m := range r.members {
		if m != nil {
			if m.lost() != nil { // the last pairs were done before that was heard
				r.nodeLost(m)
			}
			m.lose(&control.Fault{Cause: control.Stopped}) // the worker ends what it measures
		}
	}
	r.tasks.Wait()
	r.result.Interrupted = ctx.Err() != nil
	r.result.Finish(c.Tolerance)
	r.result.Elapsed = time.Since(began)
	return r.result
}

// run is one run of a mesh.
type run struct {
	Config
	result  *Result
	members []*member // by node; nil where there is no worker
	port    []int     // by NIC
	queue   *schedule.Queue
	links   map[schedule.Pair]int // their places in the result
	running int
	reached []int // by NIC: pairs that were reached
	failed  []int // by NIC: pairs that were not
	total   int
	over    int // pairs of total that are done or given up
	lost    chan *member
	done    chan done
	tasks   sync.WaitGroup
}

// done is a pair that was measured.
type done struct {
	pair schedule.Pair
	link Link
}

// gather greets all workers, and lists their NICs.
func (r *run) gather(ctx context.Context) {
	var greeting sync.WaitGroup
	room := make(chan struct{}, dials)
	for i, n := range r.Nodes {
		r.result.Nodes[i].Addr = n.Addr()
		greeting.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			m, f := r.join(ctx, n)
			if f != nil {
				r.result.Nodes[i].Fault = faultOf(f)
				return
			}
			r.members[i], r.result.Nodes[i].Host = m, m.welcome.Host
		})
	}
	greeting.Wait()
	hosts := make([]string, len(r.Nodes))
	for i, n := range r.Nodes {
		hosts[i] = n.Host
	}
	for i, m := range r.members {
		if m == nil {
			continue
		}
		for rail, n := range m.welcome.NICs {
			r.result.NICs = append(r.result.NICs, NIC{Node: i, Rail: rail, Name: n.Name, Memory: n.Memory, Path: n.Path, Why: n.Why, Fault: faultOf(n.Fault)})
			r.port = append(r.port, n.Port)
		}
		r.tasks.Go(func() { m.read(r.Silence, func(m *member) { r.lost <- m }) })
		r.tasks.Go(func() { m.ping(ctx, min(r.Silence/4, pingEvery)) })
		greeting.Go(func() {
			if _, f := m.order(ctx, &control.Message{Roster: &control.Roster{Hosts: hosts, Self: i}}, r.Silence); f != nil {
				m.lose(f)
			}
		})
	}
	greeting.Wait()
}

// plan orders the pairs of NICs that take part, and notes all pairs as unknown.
func (r *run) plan() {
	counts := make([]int, len(r.Nodes))
	for _, n := range r.result.NICs {
		counts[n.Node]++
	}
	rounds := schedule.Rounds(counts, r.SameRail)
	r.links = map[schedule.Pair]int{}
	pairs := slices.Concat(rounds...)
	slices.SortFunc(pairs, func(x, y schedule.Pair) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	for i, p := range pairs {
		r.links[p] = i
		r.result.Links = append(r.result.Links, Link{A: p.A, B: p.B, State: Unknown, Caller: p.A})
	}
	r.result.Rounds, r.total = len(rounds), len(pairs)
	r.queue = schedule.NewQueue(len(r.result.NICs), rounds, r.Parallel)
	r.reached, r.failed = make([]int, len(r.result.NICs)), make([]int, len(r.result.NICs))
	for i, n := range r.result.NICs {
		if n.Fault != nil {
			r.giveUp(i, Unknown, n.Fault)
		}
	}
}

// measure measures all pairs.
func (r *run) measure(ctx context.Context) {
	r.plan()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.start(ctx, r.queue.Start())
	ended := ctx.Done()
	for r.running > 0 {
		select {
		case d := <-r.done:
			r.running--
			r.note(d)
			if ctx.Err() == nil {
				r.start(ctx, r.queue.Done(d.pair))
			}
		case m := <-r.lost:
			r.nodeLost(m)
		case <-ended:
			ended = nil // pairs under way end by themselves now
			for i := range r.result.NICs {
				r.giveUp(i, Unknown, &Fault{Cause: string(control.Stopped), Text: "the run was ended before"})
			}
		}
	}
}

func (r *run) start(ctx context.Context, pairs []schedule.Pair) {
	for _, p := range pairs {
		r.running++
		r.tasks.Go(func() {
			l := r.pair(ctx, p)
			r.done <- done{p, l}
		})
	}
}

// note keeps what came of a pair.
func (r *run) note(d done) {
	r.result.Links[r.links[d.pair]] = d.link
	r.over++
	for _, nic := range []int{d.pair.A, d.pair.B} {
		switch d.link.State {
		case Reached, Failed:
			r.reached[nic]++
		case Unreached:
			r.failed[nic]++
		}
		if r.GiveUp > 0 && r.reached[nic] == 0 && r.failed[nic] >= r.GiveUp {
			n := r.result.NICs[nic]
			r.giveUp(nic, Unknown, &Fault{
				Cause: string(control.Stopped), Step: "not tried",
				Text: n.Name + " of " + r.result.Nodes[n.Node].Addr + " has reached none of " + human.Plural(r.failed[nic], "NIC"),
			})
		}
	}
	r.progress()
}

// giveUp notes all pairs of a NIC that have not begun.
func (r *run) giveUp(nic int, s State, why *Fault) {
	for _, p := range r.queue.Drop(nic) {
		l := &r.result.Links[r.links[p]]
		l.State, l.Fault = s, why
		r.over++
	}
	r.progress()
}

func (r *run) progress() {
	if r.Progress != nil {
		r.Progress(r.over, r.total)
	}
}

// nodeLost notes a node that was lost, and all of its pairs that have not begun.
func (r *run) nodeLost(m *member) {
	i := slices.Index(r.members, m)
	why := faultOf(m.lost())
	n := &r.result.Nodes[i]
	if n.Lost {
		return
	}
	n.Lost, n.Fault = true, why
	r.Tell("%s is lost: %s", n.Addr, why.Text)
	for nic := range r.result.NICs {
		if r.result.NICs[nic].Node == i {
			r.giveUp(nic, Lost, &Fault{Cause: why.Cause, Step: n.Addr + " was lost during the run", Text: why.Text})
		}
	}
}
