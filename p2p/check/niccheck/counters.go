// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func lostPackets(l *check.Look) {
	perPort(l, ibdev.LinkEthernet, func(name string, n drivers.NIC, p ibdev.Port) {
		if n.Software {
			l.Say(p2p.ResultSkip, name, nil, "no hardware")
			return
		}
		if down(l, name, n, p) {
			return
		}
		at := []string{"/" + check.PortDir(n, p, "hw_counters")}
		all, bad := l.Machine.Losses(n.Name, p.Num)
		grown := grown(l, name)
		lost := slices.DeleteFunc(slices.Clone(all), func(c machine.Count) bool { return c.N == 0 })
		var text []string
		for _, c := range lost {
			text = append(text, c.String())
		}
		switch {
		case len(grown) > 0:
			controlled(l, n, p, l.Warn(name, at, "while the proof ran, on a port that others use as well: %s", strings.Join(grown, ", ")))
		case len(lost) > 0:
			controlled(l, n, p, l.Warn(name, at, "since the driver was loaded: %s", strings.Join(text, ", ")))
		case bad.Err != nil:
			l.Unread(name, bad)
		case !slices.ContainsFunc(all, func(c machine.Count) bool { return !slices.Contains(machine.Discards, c.Name) }):
			l.Unknown(name, at, "p2pcheck knows no counter of lost packets of %s", n.Importer.DriverName())
		default:
			l.Pass(name, at, "none, by %s", human.Plural(len(all), "counter"))
		}
	})
}

// controlled adds to a finding about lost packets whether flow control is on in the port's network device.
func controlled(l *check.Look, n drivers.NIC, p ibdev.Port, f *check.Finding) {
	f.Remedy = &chain.Remedy{Change: l.Check.Fix.Change, Command: l.Check.Fix.Command}
	addressed(f, n, p)
	devs := netDevs(n, p)
	if l.Subject.Live.PFC == nil || len(devs) == 0 {
		return
	}
	on, err := l.Subject.Live.PFC(devs[0])
	switch {
	case err != nil: // most often the network device has no such setting: the switch and ECN may still prevent losses
	case len(on) == 0:
		f.Read += fmt.Sprintf("; PFC is off on %s", devs[0])
	default:
		f.Read += fmt.Sprintf("; PFC is on on %s for priority %s", devs[0], strings.Trim(fmt.Sprint(on), "[]"))
		f.Fix("see that the traffic has a priority for which PFC is on, and that the switch's ports have it, too", "", "")
	}
}

// grown returns the counters of a port's losses that increased during proofs.
func grown(l *check.Look, port string) []string {
	var out []string
	for _, p := range l.Pairs {
		if p.Proof == nil {
			continue
		}
		for _, text := range p.Proof.Watch.Losses {
			if rest, ok := strings.CutPrefix(text, port+": "); ok && !slices.Contains(out, rest) {
				out = append(out, rest)
			}
		}
	}
	return out
}
