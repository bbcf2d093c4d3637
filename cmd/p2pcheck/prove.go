// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/live"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// step is a rung of a proof.
type step struct {
	Step   string `json:"step"`
	Result string `json:"result"`
	Detail string `json:"detail"`
}

// residence is what the GPU's driver counted in the GPU's memory.
type residence struct {
	Size    int64  `json:"size"`
	Without int64  `json:"without"`
	Before  int64  `json:"before"`
	After   int64  `json:"after"`
	Error   string `json:"error"`
}

// proof is what became of a pair when it was tried.
type proof struct {
	Outcome   string               `json:"outcome"`
	Errno     *numbered            `json:"errno,omitempty"`
	Stage     string               `json:"stage,omitempty"`
	Why       string               `json:"why"`
	Agrees    placement.Answer     `json:"agrees"`
	Steps     []step               `json:"steps"`
	Placement *placement.Placement `json:"placement"`
	Resident  *residence           `json:"resident"`
	Verified  int64                `json:"verified_bytes"`
	WriteRate float64              `json:"write_bytes_per_s"`
	ReadRate  float64              `json:"read_bytes_per_s"`
	HostWrite float64              `json:"host_write_bytes_per_s"`
	HostRead  float64              `json:"host_read_bytes_per_s"`
	Elapsed   time.Duration        `json:"elapsed_ns"`
	Log       []string             `json:"log"`
	LogOthers int                  `json:"log_others"`
	LogError  string               `json:"log_error"`
	Links     []string             `json:"link_errors"`
	Losses    []string             `json:"losses"`
}

// liveRun is what --live did.
type liveRun struct {
	Proven       summary       `json:"proven"`
	Tried        int           `json:"tried"`
	Contradicted int           `json:"contradicted"`
	Untraced     string        `json:"untraced"` // why nothing says where the bytes were; "" if it was traced
	Unmoved      string        `json:"unmoved"`  // why nothing was written and read; "" if it was
	Untried      string        `json:"untried"`  // why nothing was tried at all
	Elapsed      time.Duration `json:"elapsed_ns"`
}

// prove tries each pair that counts, until somebody interrupts it.
func (a *app) prove(m *machine.Machine, pairs []p2p.Pair) (_ *liveRun, err error) {
	r := &liveRun{}
	ctx, cancel := cli.Context()
	defer cancel()
	start := time.Now()
	var counting []*p2p.Pair
	for i := range pairs {
		if pairs[i].GPU.Exporter.Class != drivers.ClassSystem {
			counting = append(counting, &pairs[i])
		}
	}
	prover, err := live.Open(m, live.Options{Limit: a.limit, Untraced: len(counting) == 0})
	if err != nil {
		r.Untried = err.Error()
		return r, err
	}
	defer func() {
		err = errors.Join(err, prover.Close())
		r.Elapsed = time.Since(start)
	}()
	if still := prover.Still(); still != nil {
		r.Unmoved = still.Error()
	}
	if len(counting) == 0 {
		r.Untried = "no GPU with memory of its own, or no NIC"
		return r, nil
	}
	if blind := prover.Blind(); blind != nil {
		r.Untraced = blind.Error()
	}
	progress := cli.NewProgress(os.Stderr)
	for i, p := range counting {
		if ctx.Err() != nil {
			break
		}
		progress.Draw("proving "+p.GPU.Name+" -> "+p.NIC.Name, int64(i), int64(len(counting)))
		p.Proof = prover.Prove(ctx, *p)
		r.Tried++
	}
	progress.Clear()
	return r, context.Cause(ctx)
}

// still reports bytes that are placed in the GPU, and of which none was moved: what
// then becomes of them is not known.
func (r *liveRun) still(p pair) bool {
	return r.Unmoved != "" && p.Proof != nil && p.Proof.Outcome == drivers.Direct.String()
}

// became is the outcome of a pair that was tried, for who counts.
func (r *liveRun) became(p pair) string {
	if r.still(p) {
		return drivers.OutcomeUnknown.String()
	}
	return p.Proof.Outcome
}

// add counts a pair that was tried.
func (r *liveRun) add(p pair) {
	if p.Proof == nil {
		return
	}
	r.Proven.add(pair{Counts: p.Counts, Outcome: r.became(p)})
	if p.Proof.Agrees == placement.No {
		r.Contradicted++
	}
}

func proofOf(p p2p.Pair) *proof {
	q := p.Proof
	if q == nil {
		return nil
	}
	out := &proof{
		Outcome: q.Outcome.String(), Stage: q.Stage, Why: q.Why, Agrees: p.Agrees(), Placement: q.Placement,
		Verified: q.Verified, WriteRate: q.WriteRate, ReadRate: q.ReadRate, HostWrite: q.HostWriteRate, HostRead: q.HostReadRate, Elapsed: q.Elapsed,
		Log: list(q.Watch.Lines), LogOthers: q.Watch.Others, Links: list(q.Watch.Errors), Losses: list(q.Watch.Losses),
	}
	for i, s := range q.Steps {
		out.Steps = append(out.Steps, step{p2p.Rung(i).String(), s.Result.String(), s.Detail})
	}
	if e := q.Errno; e != 0 {
		out.Errno = numberedOf(e)
	}
	if r := q.Resident; r != nil {
		out.Resident = &residence{Size: r.Size, Without: r.Without, Before: r.Before, After: r.After}
		if r.Err != nil {
			out.Resident.Error = r.Err.Error()
		}
	}
	if err := q.Watch.LogErr; err != nil {
		out.LogError = err.Error()
	}
	return out
}

// failed reports a step that broke.
func (q *proof) failed() bool {
	for _, s := range q.Steps {
		if s.Result == p2p.ResultFail.String() {
			return true
		}
	}
	return false
}

// String says what happened, and what that rests on.
func (q *proof) String() string {
	outcome := q.Outcome
	if q.Errno != nil {
		outcome += " with " + q.Errno.Name
	}
	return outcome + ": " + q.Why
}

// now is the outcome of a pair as far as it is known: what was proven, or was
// predicted. A prediction that was to be proven, and could not be, is not good
// enough; nor is a place in the GPU without a byte that arrived there.
func (r checkResult) now(p pair) string {
	direct := drivers.Direct.String()
	switch {
	case r.Live == nil:
		return p.Outcome
	case r.Live.still(p):
		return drivers.OutcomeUnknown.String()
	case p.Proof != nil && p.Proof.Outcome != drivers.OutcomeUnknown.String():
		return p.Proof.Outcome
	case p.Outcome == direct:
		return drivers.OutcomeUnknown.String()
	}
	return p.Outcome
}

// broken reports a proof that contradicts its prediction, or of which a step
// broke.
func (r checkResult) broken() bool {
	for _, p := range r.Pairs {
		if p.Proof != nil && p.Counts && (p.Proof.Agrees == placement.No || p.Proof.failed()) {
			return true
		}
	}
	return false
}

// contradictions comes before all else: what the rest says is then in doubt.
func contradictions(b *strings.Builder, s style, r checkResult) {
	var order []string
	groups := map[string][]pair{}
	for _, p := range r.Pairs {
		if p.Proof == nil || p.Proof.Agrees != placement.No {
			continue
		}
		key := fmt.Sprintf("  predicted: %s: %s\n  proven:    %s\n", lookOf(p.Outcome).headline(p), strings.Join(p.Why, "; "), p.Proof)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], p)
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", s.paint("1;31", "THE PROOF CONTRADICTS THE PREDICTION"))
	for _, key := range order {
		fmt.Fprintf(b, "%s\n%s", names(groups[key], true), key)
	}
	b.WriteString("The proof is right. `p2pcheck snapshot FILE` keeps what the prediction rests on.\n")
}

// liveText is the matrix of what was proven, then what there is to say of it.
func liveText(b *strings.Builder, s style, r checkResult) {
	if r.Live == nil {
		return
	}
	if r.Live.Tried == 0 {
		if r.Live.Untried != "" {
			fmt.Fprintf(b, "\nNothing was proven: %s\n", r.Live.Untried)
		}
		return
	}
	done := "registered, written and read"
	if r.Live.Unmoved != "" {
		done = "registered; nothing was written and read"
	}
	fmt.Fprintf(b, "\nLive proof: %s\n", done)
	matrix(b, s, r, func(p pair) cell { return provenCell(r.Live, p) })
	for _, l := range looks {
		proofs(b, s, r, l)
	}
	fmt.Fprintf(b, "\n%s tried: %d direct, %d staged, %d refused, %d unknown; %d against the prediction\n",
		human.Plural(r.Live.Tried, "pair"), r.Live.Proven.Direct, r.Live.Proven.Staged, r.Live.Proven.Refused, r.Live.Proven.Unknown, r.Live.Contradicted)
	if r.Live.Untraced != "" {
		fmt.Fprintf(b, "Not traced, so nothing proves where the bytes were: %s\n", r.Live.Untraced)
	}
	if r.Live.Unmoved != "" {
		fmt.Fprintf(b, "Not written and read, so nothing proves that bytes arrive: %s\n", r.Live.Unmoved)
	}
}

// provenCell is a pair in the matrix. What broke behind the registration stands
// beside the outcome.
func provenCell(live *liveRun, p pair) cell {
	if p.Proof == nil {
		return cell{"-", ""}
	}
	l := lookOf(p.Proof.Outcome)
	c := cell{l.word, l.color}
	if live.still(p) {
		c = cell{l.word + ", not moved", "33"}
	}
	for _, s := range p.Proof.Steps {
		if s.Result == "fail" && s.Step != p2p.RungPlace.String() && s.Step != p2p.RungRegister.String() {
			c = cell{c.text + ", not " + s.Step, "31"}
		}
	}
	if p.Proof.Agrees == placement.No {
		c = cell{c.text + " (!)", "31"}
	}
	return c
}

// proofs tells the pairs that became one outcome: those with a broken or open
// step, and all of them if that is asked for.
func proofs(b *strings.Builder, s style, r checkResult, l look) {
	var order []string
	groups := map[string][]pair{}
	for _, p := range r.Pairs {
		if p.Proof == nil || p.Proof.Outcome != l.outcome.String() {
			continue
		}
		steps := proofText(p.Proof, s.verbose)
		if steps == "" {
			continue
		}
		word := l.word
		switch {
		case p.Proof.Errno != nil:
			word += " with " + p.Proof.Errno.Name
		case l.outcome == drivers.OutcomeUnknown:
			word = "UNKNOWN"
		}
		key := word + "\n" + steps
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], p)
	}
	for _, key := range order {
		word, steps, _ := strings.Cut(key, "\n")
		fmt.Fprintf(b, "\n%s  %s\n%s", s.paint(l.color, word), names(groups[key], s.verbose), steps)
	}
}

// proofText has the steps that did not pass, and what the machine said meanwhile.
func proofText(q *proof, all bool) string {
	var b strings.Builder
	for _, s := range q.Steps {
		if all || s.Result == "fail" || s.Result == "unknown" {
			fmt.Fprintf(&b, "  %-10s  %-7s  %s\n", s.Step, s.Result, s.Detail)
		}
	}
	if all && q.WriteRate > 0 {
		host := ""
		if q.HostWrite > 0 {
			host = fmt.Sprintf(" (host memory: %s, %s)", human.Rate(q.HostWrite), human.Rate(q.HostRead))
		}
		fmt.Fprintf(&b, "  %s to write, %s to read%s; %s\n", human.Rate(q.WriteRate), human.Rate(q.ReadRate), host, human.Duration(q.Elapsed))
	}
	meanwhile := slices.Concat(q.Log, q.Links, q.Losses)
	for i, line := range meanwhile {
		if i == shownLog && !all {
			fmt.Fprintf(&b, "  and %d more\n", len(meanwhile)-i)
			break
		}
		fmt.Fprintf(&b, "  meanwhile: %s\n", line)
	}
	return b.String()
}

// shownLog is of how many lines a proof tells.
const shownLog = 4
