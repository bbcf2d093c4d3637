// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"time"
)

// mostTurns bounds the GPUs whose partners are tried first.
const mostTurns = 16

// turnEnds is after how long a GPU's turn is over whose claim has not come again: the scheduler waits 10 s at most
// before it tries a pod again, and 5 s until it sees an answer.
const turnEnds = time.Minute

// together is the time in which the answers to claims come that the scheduler has tried one right after the other.
const together = 500 * time.Millisecond

// closedFor is how long no claim gets a NIC after a GPU was refused for the closesAfter-th time. Until then the scheduler has
// seen the answers to all claims that it has given NICs, and has taken the NICs back.
const (
	closedFor   = 15 * time.Second
	closesAfter = 3
)

// turns are the GPUs whose claims were refused, since the claim had no partner of its GPU. The partners of the first one
// are published first, then those of the second one, so that the scheduler takes them when the pods come again.
type turns struct {
	list  []turn
	opens time.Time // until then no claim gets a NIC
}

type turn struct {
	gpu   string
	last  time.Time // when its claim was refused
	at    int       // where the NIC stood among those that are published which the claim had instead
	times int       // that it was refused since it has this turn, or since the NICs were closed
}

// refuse gives GPUs of a claim a turn. The GPUs are in the order in which the scheduler has tried their pods: by the times of the
// refusals and, of those that come together, by at, which is where the NIC stood that the claim had. If the scheduler
// tries the pods in the same order again, each finds its own partner in its place. That does not help where two groups of pods hold each other's
// partners, and one gives them back just after the other has taken NICs again. Then no claim gets a NIC for a
// while, until all of them are free. closes reports that this begins now.
func (t *turns) refuse(gpus []string, at int, now time.Time) (closes bool) {
	for _, g := range gpus {
		x := turn{gpu: g}
		if i := slices.IndexFunc(t.list, func(x turn) bool { return x.gpu == g }); i >= 0 {
			x = t.list[i]
			t.list = slices.Delete(t.list, i, i+1)
		}
		x.last, x.at, x.times = now, at, x.times+1
		before := len(t.list)
		for before > 0 && now.Sub(t.list[before-1].last) < together && t.list[before-1].at >= at {
			before--
		}
		t.list = slices.Insert(t.list, before, x)
		if x.times >= closesAfter && !t.closed(now) {
			t.opens, closes = now.Add(closedFor), true
		}
	}
	if t.closed(now) {
		for i := range t.list {
			t.list[i].times = 0
		}
	}
	t.list = t.list[max(0, len(t.list)-mostTurns):]
	return closes
}

// closed reports that no claim gets a NIC now.
func (t *turns) closed(now time.Time) bool { return now.Before(t.opens) }

// accept ends the turns of GPUs, and reports whether they had any.
func (t *turns) accept(gpus []string) bool {
	was := len(t.list)
	t.list = slices.DeleteFunc(t.list, func(x turn) bool { return slices.Contains(gpus, x.gpu) })
	return len(t.list) != was
}

// gpus returns the GPUs whose turn it is, the first one first.
func (t *turns) gpus(now time.Time) (list []string) {
	t.list = slices.DeleteFunc(t.list, func(x turn) bool { return now.Sub(x.last) >= turnEnds })
	for _, x := range t.list {
		list = append(list, x.gpu)
	}
	return list
}
