// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// formats are outputs for other programs, each with the exit status that these
// expect. Without a result nothing could be looked at.
var formats = map[string]func(b *strings.Builder, run formatted) int{
	"nagios": nagios, "npd": npd, "prometheus": prometheus, "nfd": nfd, "dra": dra,
}

// formatted prints what was found for another program. Output that did not
// arrive is nothing known, in the words of that program.
func (a *app) formatted(write func(*strings.Builder, formatted) int, found output, status int, err error) int {
	var r *checkResult
	if whole, ok := found.(checkOutput); ok {
		r = (*checkResult)(&whole)
	} else {
		cli.PrintErrors(a.stderr, program, err)
	}
	var b strings.Builder
	status = write(&b, formatted{r, status, problems(err)})
	if err := a.emit([]byte(a.unmasked(b.String()))); err != nil {
		cli.PrintErrors(a.stderr, program, err)
		return write(&b, formatted{nil, cli.ExitUsage, problems(err)})
	}
	return status
}

// toFile reports that the output goes to a file: "-" is the standard output.
func (a *app) toFile() bool { return a.output != "" && a.output != standard }

// emit writes to the file that was named.
func (a *app) emit(data []byte) error {
	if !a.toFile() {
		_, err := a.stdout.Write(data)
		return err
	}
	return writeWhole("the result", "--output", a.output, data, othersRead)
}

// othersRead is the mode of a file that somebody else collects.
const othersRead = 0o644

// writeWhole gives a file new contents, whole or not at all, and a device what
// it takes.
func writeWhole(what, flag, name string, data []byte, mode fs.FileMode) error {
	f, err := cli.Create(name)
	if err == nil {
		_, err = f.Write(data)
		if err == nil {
			err = f.Keep(mode)
		}
		err = errors.Join(err, f.Drop())
	}
	if err != nil {
		return cli.Unwritten(what, flag, name, err)
	}
	return nil
}

// formatted is what is told to another program: what a run found, nil if nothing could be
// looked at, its status, and what could not be read.
type formatted struct {
	found  *checkResult
	status int
	errors []problem
}

// problem is one thing that could not be read.
type problem struct {
	kind    string
	message string
}

// problems takes an error apart.
func problems(err error) (out []problem) {
	for _, e := range cli.Explain(err) {
		out = append(out, problem{e.Kind, e.Message})
	}
	return out
}

// verdict is a run in one word, as status has it.
func verdict(r *checkResult, status int) string {
	switch {
	case r == nil:
		return "unknown"
	case status == statusGood && r.Tally.Warn > 0:
		return "warn"
	case status == statusGood:
		return "pass"
	case status == statusBad:
		return "fail"
	}
	return "unknown"
}

// headline is how many pairs are direct.
func (s summary) headline() string {
	if s.all() == 0 {
		return "no pair to check"
	}
	return fmt.Sprintf("%d of %d pairs direct", s.Direct, s.all())
}

// headline is what is wrong, in a line: the first of each kind.
func headline(run formatted) string {
	var parts []string
	r := run.found
	if r == nil {
		r = &checkResult{}
	} else {
		if l := r.Live; l != nil {
			if l.Contradicted > 0 {
				parts = append(parts, human.Plural(l.Contradicted, "prediction")+" contradicted")
			}
			parts = append(parts, fmt.Sprintf("%d of %d pairs proven direct", l.Proven.Direct, r.Summary.all()))
		} else {
			parts = append(parts, r.Summary.headline())
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(r.Drift), func(d drift) bool { return !d.worse() })); n > 0 {
		text := "worse than its baseline: " + r.Drift[0].difference()
		if n > 1 {
			text += fmt.Sprintf(" and %d more", n-1)
		}
		parts = append(parts, text)
	}
	for _, rank := range []string{"fail", "unknown", "warn"} {
		if ids := namedBy(r.Checks, rank); len(ids) > 0 {
			parts = append(parts, rank+": "+strings.Join(ids, " "))
		}
	}
	if len(run.errors) > 0 {
		parts = append(parts, run.errors[0].message)
	}
	return escape(strings.NewReplacer("\n", " ", "\t", " ", "|", "/").Replace(strings.Join(parts, "; ")))
}

// namedBy are the checks whose worst is this result: each has one place in a line. Of
// the unknown those that can only warn are left out, unless they did.
func namedBy(all []finding, rank string) (ids []string) {
	worst, matters := worstOf(all), map[string]bool{}
	for _, f := range all {
		matters[f.ID] = matters[f.ID] || f.Result == "warn" || f.Result == "unknown" && f.Decides
	}
	for _, id := range idsOf(all) {
		if worst[id] == rank && (matters[id] || rank != "unknown") {
			ids = append(ids, id)
		}
	}
	return ids
}

// nagios is one line with performance data, and 0 OK, 1 warning, 2 critical, 3
// unknown.
func nagios(b *strings.Builder, run formatted) int {
	r, v := run.found, verdict(run.found, run.status)
	code := slices.Index([]string{"pass", "warn", "fail", "unknown"}, v)
	fmt.Fprintf(b, "P2PCHECK %s - %s", []string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[code], headline(run))
	if r != nil {
		s, t := r.Summary, r.Tally
		unknown := len(namedBy(r.Checks, "unknown"))
		fmt.Fprintf(b, " | direct=%d staged=%d refused=%d unknown=%d checks_failed=%d checks_warned=%d checks_unknown=%d checks_unlisted=%d", s.Direct, s.Staged, s.Refused, s.Unknown, t.Fail, t.Warn, unknown, t.Unknown-unknown)
		if l := r.Live; l != nil {
			fmt.Fprintf(b, " proven_direct=%d proven_staged=%d proven_refused=%d unproven=%d contradicted=%d", l.Proven.Direct, l.Proven.Staged, l.Proven.Refused, l.Proven.Unknown, l.Contradicted)
		}
	}
	b.WriteString("\n")
	return code
}

// npdLength is how much of the output node-problem-detector keeps.
const npdLength = 80

// npd is a line for a custom plugin of node-problem-detector, and 0 good, 1 not,
// 2 unknown.
func npd(b *strings.Builder, run formatted) int {
	text := headline(run)
	if len(text) > npdLength {
		text = strings.ToValidUTF8(text[:npdLength-3], "") + "..."
	}
	fmt.Fprintln(b, text)
	switch verdict(run.found, run.status) {
	case "pass", "warn":
		return 0
	case "fail":
		return 1
	}
	return 2
}

// counting is how many of the GPUs have memory for a NIC to reach.
func counting(gpus []gpu) int {
	n := 0
	for _, g := range gpus {
		if g.Counts {
			n++
		}
	}
	return n
}

// nfd are labels for node-feature-discovery's local source.
func nfd(b *strings.Builder, run formatted) int {
	r, status := run.found, run.status
	fmt.Fprintf(b, "p2pcheck.result=%s\n", verdict(r, status))
	if r == nil {
		return status
	}
	direct := map[string]bool{}
	for _, p := range r.Pairs {
		if p.Counts && p.Outcome == "direct" {
			direct[p.GPU] = true
		}
	}
	fmt.Fprintf(b, "p2pcheck.gpus=%d\n", counting(r.GPUs))
	fmt.Fprintf(b, "p2pcheck.gpus-direct=%d\n", len(direct))
	fmt.Fprintf(b, "p2pcheck.nics=%d\n", len(r.NICs))
	fmt.Fprintf(b, "p2pcheck.pairs-direct=%d\n", r.Summary.Direct)
	if l := r.Live; l != nil {
		fmt.Fprintf(b, "p2pcheck.pairs-proven-direct=%d\n", l.Proven.Direct)
		fmt.Fprintf(b, "p2pcheck.contradicted=%d\n", l.Contradicted)
	}
	return status
}

// dra are the devices as a ResourceSlice of Kubernetes names them, a line each: a
// claim takes a GPU and a NIC of one resource.kubernetes.io/pcieRoot together. What
// is not known is left out, and a device that several names stand for is there
// once.
func dra(b *strings.Builder, run formatted) int {
	r, status := run.found, run.status
	fmt.Fprintf(b, "# p2pcheck: %s\n", verdict(r, status))
	if r == nil {
		return status
	}
	b.WriteString("devices:\n")
	seen := map[machine.Addr]bool{}
	device := func(kind, name string, pci *machine.Addr, at place) {
		switch {
		case pci == nil:
			fmt.Fprintf(b, "# %s is on no PCI bus\n", escape(name))
			return
		case seen[*pci]:
			return
		}
		seen[*pci] = true
		attributes := fmt.Sprintf("resource.kubernetes.io/pciBusID: {string: %q}", pci)
		if at.Root != nil {
			attributes += fmt.Sprintf(", resource.kubernetes.io/pcieRoot: {string: %q}", *at.Root)
		}
		// A name is a DNS label: no colon and no dot.
		id := strings.NewReplacer(":", "-", ".", "-").Replace(pci.String())
		fmt.Fprintf(b, "- {name: %s-%s, attributes: {%s}}\n", kind, id, attributes)
	}
	for _, g := range r.GPUs {
		if g.Counts {
			device("gpu", g.Name, g.PCI, g.place)
		}
	}
	for _, n := range r.NICs {
		device("nic", n.Name, n.PCI, n.place)
	}
	return status
}

// prometheus is the text format of metrics.
func prometheus(b *strings.Builder, run formatted) int {
	r, status := run.found, run.status
	metric := func(name, help string) {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
	}
	metric("p2pcheck_status", "Exit status of p2pcheck: 0 good, 1 not, 2 nothing could be read, 3 something is unknown.")
	fmt.Fprintf(b, "p2pcheck_status %d\n", status)
	metric("p2pcheck_errors", "What could not be read.")
	fmt.Fprintf(b, "p2pcheck_errors %d\n", len(run.errors))
	if len(run.errors) > 0 {
		metric("p2pcheck_error", "1 for each thing that could not be read, and why.")
	}
	var said []string
	for _, e := range run.errors {
		text := quoted(escape(e.message))
		if slices.Contains(said, text) {
			continue // a series is there once
		}
		said = append(said, text)
		fmt.Fprintf(b, "p2pcheck_error{kind=%s,message=%s} 1\n", quoted(e.kind), text)
	}
	if r == nil {
		return status
	}
	metric("p2pcheck_pair_outcome", "1 for what becomes of a registration of the GPU's memory with the NIC.")
	for _, p := range r.Pairs {
		if p.Counts {
			fmt.Fprintf(b, "p2pcheck_pair_outcome{gpu=%s,nic=%s,outcome=%s} 1\n", quoted(p.GPU), quoted(p.NIC), quoted(p.Outcome))
		}
	}
	metric("p2pcheck_pair_distance", "The kernel's distance, -1 if it supports no way.")
	for _, p := range r.Pairs {
		if d := p.Decision.Distance; p.Counts && d != nil {
			fmt.Fprintf(b, "p2pcheck_pair_distance{gpu=%s,nic=%s} %d\n", quoted(p.GPU), quoted(p.NIC), *d)
		}
	}
	if r.Live != nil {
		metric("p2pcheck_pair_proof", "1 for what became of a registration when it was tried.")
		for _, p := range r.Pairs {
			if p.Proof != nil {
				fmt.Fprintf(b, "p2pcheck_pair_proof{gpu=%s,nic=%s,outcome=%s} 1\n", quoted(p.GPU), quoted(p.NIC), quoted(r.Live.became(p)))
			}
		}
		metric("p2pcheck_predictions_contradicted", "Pairs whose proof is against the prediction.")
		fmt.Fprintf(b, "p2pcheck_predictions_contradicted %d\n", r.Live.Contradicted)
	}
	metric("p2pcheck_check", "1 for the worst that a check found.")
	worst := worstOf(r.Checks)
	for _, id := range idsOf(r.Checks) {
		fmt.Fprintf(b, "p2pcheck_check{id=%s,result=%s} 1\n", quoted(id), quoted(worst[id]))
	}
	return status
}

// escaped is all that the format escapes in a label's value.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// quoted is a label's value.
func quoted(s string) string {
	return `"` + escaped.Replace(strings.ToValidUTF8(s, "?")) + `"`
}
