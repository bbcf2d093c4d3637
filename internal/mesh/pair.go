// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"time"

	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/schedule"
)

// The steps of a measurement that have the plan's timeout: to wait for the NIC, look up the host, connect, get
// the memory, write twice, read, and measure three times. The end of the connection takes as long as some.
const (
	steps    = 12
	endSteps = 5
)

// tries is how often a pair is measured at most, if a host was too busy to connect in time.
const tries = 3

// pair has two NICs measured.
func (r *run) pair(ctx context.Context, p schedule.Pair) (l Link) {
	for range tries {
		l = r.try(ctx, p)
		if l.Fault == nil || l.Fault.Cause != string(control.TooSlow) || ctx.Err() != nil {
			break
		}
	}
	return l
}

// try has two NICs measured once. Each worker is given up if it does not answer in time.
func (r *run) try(ctx context.Context, p schedule.Pair) Link {
	from, to := p.A, p.B
	if (p.A+p.B)%2 == 1 { // both nodes call about as often
		from, to = to, from
	}
	l := Link{A: p.A, B: p.B, Caller: from}
	caller, called := r.members[r.result.NICs[from].Node], r.members[r.result.NICs[to].Node]
	timeout := r.Plan.Timeout
	measuring := steps*timeout + 3*r.Plan.Time + endSteps*timeout
	token := control.NewToken()

	fail := func(s State, f *control.Fault) Link {
		l.State, l.Fault = s, faultOf(f)
		for _, n := range []int{from, to} {
			node := r.result.NICs[n].Node
			if why := r.members[node].lost(); why != nil {
				l.State, l.Fault = Lost, &Fault{Cause: string(why.Cause), Step: r.result.Nodes[node].Addr + " was lost during the run", Text: why.Text}
			}
		}
		if ctx.Err() != nil {
			l.State, l.Fault = Unknown, &Fault{Cause: string(control.Stopped), Text: "the run was ended meanwhile"}
		}
		return l
	}
	ready, f := called.order(ctx, &control.Message{Expect: &control.Expect{Token: token, Caller: caller.welcome.Session, NIC: r.result.NICs[to].Name, Plan: r.Plan}}, 2*timeout+r.Silence)
	if f != nil {
		return fail(Unknown, f)
	}
	o, f := r.call(ctx, caller, called, &control.Measure{Token: token, NIC: r.result.NICs[from].Name, To: r.result.NICs[to].Node, Port: r.port[to], Plan: r.Plan, Permit: ready.Permit}, measuring)
	theirs, _ := called.order(ctx, &control.Message{Release: &control.Release{Token: token}}, endSteps*timeout+r.Silence)
	switch {
	case f != nil:
		return fail(Unknown, f)
	case o.Fault != nil && theirs != nil && theirs.Outcome != nil:
		o.Fault = both(o.Fault, theirs.Outcome.Fault)
	}
	l.Over, l.Latency, l.P99 = o.Over, int64(o.Latency.P50), int64(o.Latency.P99)
	l.AtoB, l.BtoA = o.Out.PerSecond(), o.In.PerSecond()
	if from == p.B {
		l.AtoB, l.BtoA = l.BtoA, l.AtoB
	}
	switch {
	case o.Fault == nil && o.Reached:
		l.State = Reached
		return l
	case o.Reached:
		return fail(Failed, o.Fault)
	case o.Fault == nil:
		return fail(Unknown, &control.Fault{Cause: control.Other, Text: "the worker has sent no result"})
	case o.Fault.Cause == control.Invalid, o.Fault.Cause == control.Stopped, o.Fault.Cause == control.TooSlow:
		return fail(Unknown, o.Fault)
	}
	return fail(Unreached, o.Fault)
}

// call lets the caller measure. If the called node is lost meanwhile, the caller gets the order to stop.
func (r *run) call(ctx context.Context, caller, called *member, m *control.Measure, limit time.Duration) (*control.Outcome, *control.Fault) {
	ended := make(chan struct{})
	defer close(ended)
	r.tasks.Go(func() {
		select {
		case <-called.gone:
			_ = caller.post(&control.Message{Release: &control.Release{Token: m.Token}}, nil)
		case <-ended:
		}
	})
	answer, f := caller.order(ctx, &control.Message{Measure: m}, limit+r.Silence)
	switch {
	case f != nil:
		return nil, f
	case answer.Outcome == nil:
		return nil, &control.Fault{Cause: control.Other, Text: "the worker has sent no result"}
	}
	return answer.Outcome, nil
}

// both joins the faults of both sides where the caller's says only that nothing came, or that it was refused.
func both(ours, theirs *control.Fault) *control.Fault {
	if theirs == nil || theirs.Cause == control.Stopped || ours.Cause != control.Gone && ours.Cause != control.Timeout && ours.Cause != control.Refused {
		return ours
	}
	return &control.Fault{Cause: theirs.Cause, Step: ours.Step, Text: control.Text(ours.Text + "; the other side: " + theirs.Error())}
}
