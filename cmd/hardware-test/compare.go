// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Comparisons of a prediction with an answer.
const (
	agrees       = "agrees"
	disagrees    = "DISAGREES"
	fits         = "fits"          // the answer leaves open what was predicted
	notPredicted = "not predicted" // there is an answer, and no prediction
	notAnswered  = "not answered"
)

// row is a prediction beside its answer.
type row struct {
	Subject   string `json:"subject"` // a GPU, or "GPU -> NIC"
	Question  string `json:"question"`
	Predicted string `json:"predicted"` // "" if nothing was
	Because   string `json:"because"`
	Answered  string `json:"answered"` // "" if nothing was
	Seen      string `json:"seen"`     // the evidence for the answer, or the reason for none
	Compared  string `json:"compared"` // "agrees", "DISAGREES", "fits", "not predicted", "not answered"
}

// compareAnswer compares answers of yes and no.
func compareAnswer(predicted, answered string) string {
	switch {
	case answered == "":
		return notAnswered
	case predicted == "":
		return notPredicted
	case predicted == answered:
		return agrees
	}
	return disagrees
}

// compareOutcome compares the outcome that was predicted for a pair with what became of it.
func compareOutcome(p result.Pair, o observed) string {
	switch {
	case o.outcome == "":
		return notAnswered
	case p.Predicted == "unknown":
		return notPredicted
	case o.outcome == arrived && (p.Predicted == "refused" || p.Predicted == "lost"):
		return disagrees
	case o.outcome == arrived:
		return fits
	case p.Predicted == "direct" || o.outcome == "direct":
		if p.Predicted == o.outcome {
			return agrees
		}
		return disagrees
	case o.outcome == notDirect, p.Predicted == "broken":
		return agrees
	case p.Predicted != o.outcome:
		return disagrees
	case p.Errno != nil && o.errno != nil && *p.Errno != *o.errno:
		return disagrees
	}
	return agrees
}

// gpuRows compares what the libraries were predicted to say of each GPU with what they said.
func gpuRows(p prediction, said map[string]answers, asked []vendor) []row {
	var out []row
	for _, v := range asked {
		a := said[v.name]
		for _, g := range p.gpus {
			if !slices.Contains(v.drivers, g.Exporter.Driver) {
				continue
			}
			of := slices.DeleteFunc(slices.Clone(a.GPUs), func(x gpu) bool { return x.PCI != g.Name })
			why := fmt.Sprintf("%s does not list this GPU: a variable, or the container, may hide it", v.library)
			if a.Error != "" {
				why = a.Error
			}
			if len(of) == 0 {
				of = []gpu{{Name: "", Answers: map[string]answer{}}}
			} else {
				why = "the library gave no answer"
			}
			for _, x := range of {
				for _, q := range v.questions {
					e := q.expect(p.m, g.Exporter)
					r := row{Subject: subject(g.Name, x), Question: q.text, Predicted: e.says, Because: e.why, Seen: why}
					if answered, ok := x.Answers[q.key]; ok {
						r.Answered, r.Seen = answered.Says, answered.Detail
					}
					r.Compared = compareAnswer(r.Predicted, r.Answered)
					out = append(out, r)
				}
			}
		}
		for _, x := range a.GPUs {
			if slices.ContainsFunc(p.gpus, func(g drivers.GPU) bool { return g.Name == x.PCI }) {
				continue
			}
			for _, q := range v.questions {
				r := row{Subject: subject(x.PCI, x), Question: q.text, Because: "the snapshot has no such GPU", Answered: x.Answers[q.key].Says, Seen: x.Answers[q.key].Detail}
				r.Compared = compareAnswer("", r.Answered)
				out = append(out, r)
			}
		}
	}
	return out
}

// subject names a GPU, with the name that its library has for it.
func subject(address string, x gpu) string {
	if x.Spec == "" {
		return address
	}
	return address + " " + x.Spec
}

// pairRows compares the outcomes of pairs. live is nil if nothing was tried, and why says so.
func pairRows(p prediction, live *result.Run, why string) []row {
	var out []row
	for _, pair := range p.pairs {
		o := observedOf(p, pair, live, why)
		r := row{
			Subject: pair.GPU + " -> " + pair.NIC, Question: "registration and transfer",
			Predicted: pair.Predicted, Because: strings.Join(pair.Why, "; "), Answered: o.outcome, Seen: o.why, Compared: compareOutcome(pair, o),
		}
		if pair.Predicted == "unknown" {
			r.Predicted = ""
		}
		out = append(out, r)
	}
	return out
}

// observedOf finds what became of a pair of the prediction.
func observedOf(p prediction, pair result.Pair, live *result.Run, why string) observed {
	if live == nil {
		return observed{why: why}
	}
	nic := p.functionIn(pair.NIC)
	for _, q := range live.Pairs {
		if q.GPU == pair.GPU && functionOf(q.NIC, live.NICs) == nic {
			o := observe(q)
			if q.Proof == nil && why != "" {
				o.why = why
			}
			return o
		}
	}
	return observed{why: "p2pcheck --live has no such pair"}
}

// tally counts rows by their comparison.
type tally struct {
	Agrees       int `json:"agrees"`
	Disagrees    int `json:"disagrees"`
	Fits         int `json:"fits"`
	NotPredicted int `json:"not_predicted"`
	NotAnswered  int `json:"not_answered"`
}

func tallyOf(rows []row) (t tally) {
	count := map[string]*int{agrees: &t.Agrees, disagrees: &t.Disagrees, fits: &t.Fits, notPredicted: &t.NotPredicted, notAnswered: &t.NotAnswered}
	for _, r := range rows {
		*count[r.Compared]++
	}
	return t
}
