// SPDX-License-Identifier: Apache-2.0

package pciecheck

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
)

// idleLinks distinguishes a link that is slow because its GPU is idle from a link that stays slow. Only a
// measurement under load shows the difference. Errors of the link are a sign of the second.
func idleLinks(l *check.Look) {
	any := false
	for _, f := range l.GPUFunctions() {
		if len(f.Upstream) == 0 && f.Err == nil {
			continue
		}
		any = true
		s, ok := linkOf(l, f)
		at := []string{"/sys/" + f.Dir + "/current_link_speed"}
		busy, moved := busySpeed(l, f)
		ever, grown, where := replays(l, f)
		if ever != "" {
			at, ever = append(at, where...), "; errors of the link since the machine was started: "+ever
		}
		switch {
		case !ok:
			l.Unknown(f.Name, at, "not known")
		case s.Speed >= s.MaxSpeed:
			l.Pass(f.Name, at, "%v", s)
		case moved && busy >= s.MaxSpeed:
			l.Pass(f.Name, at, "%v when it is idle, and %g GT/s while data was moved", s, busy)
		case grown != "":
			l.Warn(f.Name, at, "%v, and the link had errors while the proof ran: %s%s", s, grown, ever).
				Fix("look again while the GPU is at work; look at riser and slot", "", "")
		case moved: // the proof moved so little data that the GPU may have stayed idle
			l.Unknown(f.Name, at, "%v, and no more than %g GT/s while the proof moved data: that is little, and the GPU may have stayed idle%s", s, busy, ever).
				Fix("look again while the GPU is at work", "", "").SetAside()
		default:
			l.Unknown(f.Name, at, "%v: an idle GPU slows its link down; the speed under load is not known%s", s, ever).
				Fix("look again while the GPU is at work, or let --live move data", "p2pcheck --live", "").SetAside()
		}
	}
	if !any {
		l.Skip("no link above a GPU")
	}
}

// busySpeed returns the highest speed in GT/s that a GPU's link had while proofs of hardware NICs moved
// data; false if there was no such proof, or the speed was not read.
func busySpeed(l *check.Look, f *check.Function) (speed float64, moved bool) {
	for _, p := range l.Pairs {
		if p.Proof == nil || p.NIC.Software || p.NIC.Importer.ByCPU || p.Proof.WriteRate <= 0 || p.GPU.Exporter.PCI == nil || *p.GPU.Exporter.PCI != f.PCI {
			continue
		}
		speed = max(speed, p.Proof.Watch.Speed)
	}
	return speed, speed > 0
}

// linkSigns are the corrected errors that a link itself causes, by their names in
// aer_dev_correctable.
var linkSigns = []string{"RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout"}

// replays returns the errors of linkSigns at the two ends of a link, in words. ever has the errors since the
// machine started; a few of them come from link training. grown has the errors while proofs ran. Each is "" if there
// were none, or if the kernel does not count them.
func replays(l *check.Look, f *check.Function) (ever, grown string, where []string) {
	var seen, more []string
	for _, end := range way(l, f)[:min(2, 1+len(f.Upstream))] {
		r := l.Read("sys", end.Dir, "aer_dev_correctable")
		for line := range strings.Lines(r.Text) {
			w := strings.Fields(line)
			if len(w) != 2 || !slices.Contains(linkSigns, w[0]) {
				continue
			}
			if n, err := strconv.ParseUint(w[1], 10, 64); err == nil && n > 0 {
				seen = append(seen, end.PCI.String()+" "+w[0]+" "+w[1])
				where = append(where, r.Where)
			}
		}
		for _, p := range l.Pairs {
			if p.Proof == nil {
				continue
			}
			for _, text := range p.Proof.Watch.Errors {
				if strings.HasPrefix(text, end.PCI.String()+": ") && !slices.Contains(more, text) {
					more = append(more, text)
				}
			}
		}
	}
	return check.Cut(seen), check.Cut(more), slices.Compact(where)
}
