// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"math/rand/v2"
	"slices"
	"time"
)

// mostTurns bounds the GPUs whose partners are tried first.
const mostTurns = 16

// turnEnds is after how long a GPU's turn is over whose claim has not come again: the scheduler waits 10 s at most
// before it tries a pod again, and 5 s until it sees an answer.
const turnEnds = time.Minute

// turns are the GPUs whose claims were refused, since the claim had no partner of its GPU. The partners of the first one
// are published first, then those of the second one, so that the scheduler takes them when the pods come again.
type turns struct{ list []turn }

type turn struct {
	gpu  string
	last time.Time // when its claim was refused
}

// refuse gives GPUs a turn. A GPU that has none comes last: the scheduler mostly tries pods in the order in which they were
// refused. One that has a turn, and did not get its partner all the same, gets another place at random: pods
// that come in another order would otherwise take each other's partners again and again.
func (t *turns) refuse(gpus []string, now time.Time) {
	for _, g := range gpus {
		at := len(t.list)
		if i := t.index(g); i >= 0 {
			t.list = slices.Delete(t.list, i, i+1)
			at = rand.IntN(len(t.list) + 1)
		}
		t.list = slices.Insert(t.list, at, turn{g, now})
	}
	t.list = t.list[max(0, len(t.list)-mostTurns):]
}

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

func (t *turns) index(gpu string) int {
	return slices.IndexFunc(t.list, func(x turn) bool { return x.gpu == gpu })
}
