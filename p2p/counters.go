// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// discards are counters of the IP layer, on the NIC: that they are zero says nothing of
// what was lost on the way.
var discards = []string{"ip4InDiscards", "ip6InDiscards"}

// lossCounters are the names, in hw_counters of a port, that drivers of 6.1 to 7.2
// give to packets that were lost, or had to be sent again. A network without loss
// leaves them at zero. What a slow receiver causes (RNR, out_of_buffer) is none.
var lossCounters = []string{
	// mlx5, and bnxt_re of 7.2
	"out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "req_transport_retries_exceeded",
	"roce_adp_retrans", "roce_adp_retrans_to",
	// bnxt_re
	"oos_drop_count", "seq_err_naks_rcvd", "missing_resp", "to_retransmits", "max_retry_exceeded", "rx_roce_discards",
	// irdma: those of the third generation, and what the IP layer of all counts
	"Rcvd Out of order packets", "Nak Sequence Error", "Nak Sequence Error Implied", "RTO", "ip4InDiscards", "ip6InDiscards",
	// efa, whose network is no Ethernet, and sends again by itself
	"rx_drops", "retrans_timeout_events",
	// mana_ib
	"responder_oos", "requester_oos_nak", "requester_implicit_nak", "requester_timeout", "requester_retries_exceeded",
	// mlx4, cxgb4
	"rq_num_oos", "sq_num_oos", "sq_num_to", "ip4RetransSegs", "ip6RetransSegs",
}

// count is a counter, and how far it has got.
type count struct {
	name string
	n    uint64
}

func (c count) String() string { return c.name + " " + strconv.FormatUint(c.n, 10) }

// losses reads those of the counters that a port has. bad is of the first that
// cannot be read.
func (m *Machine) losses(nic string, port int) (all []count, bad reading) {
	dir := path.Join("sys/class/infiniband", nic, "ports", strconv.Itoa(port), "hw_counters")
	for _, name := range lossCounters {
		r := m.read(dir, name)
		n, ok := r.number()
		switch {
		case r.gone():
		case ok:
			all = append(all, count{name, n})
		case bad.where == "":
			if bad = r; bad.err == nil {
				bad.err = errNoCount
			}
		}
	}
	return all, bad
}

func (l *look) lostPackets() {
	l.perPort(ibvfd.LinkEthernet, func(name string, n NIC, p ibvfd.PortInfo) {
		if n.Software {
			l.say(ResultSkip, name, nil, "no hardware")
			return
		}
		if l.down(name, n, p) {
			return
		}
		at := []string{"/" + portDir(n, p, "hw_counters")}
		all, bad := l.m.losses(n.Name, p.Num)
		grown := l.grown(name)
		lost := slices.DeleteFunc(slices.Clone(all), func(c count) bool { return c.n == 0 })
		var text []string
		for _, c := range lost {
			text = append(text, c.String())
		}
		switch {
		case len(grown) > 0:
			l.controlled(n, p, l.warn(name, at, "while the proof ran, on a port that others use as well: %s", strings.Join(grown, ", ")))
		case len(lost) > 0:
			l.controlled(n, p, l.warn(name, at, "since the driver was loaded: %s", strings.Join(text, ", ")))
		case bad.err != nil:
			l.unread(name, bad)
		case !slices.ContainsFunc(all, func(c count) bool { return !slices.Contains(discards, c.name) }):
			l.unknown(name, at, "no counter of lost packets is known here of %s", n.Importer.driver())
		default:
			l.pass(name, at, "none, by %s", plural(len(all), "counter"))
		}
	})
}

// controlled adds to lost packets whether the port's network device has flow control.
func (l *look) controlled(n NIC, p ibvfd.PortInfo, f *Finding) {
	f.Remedy = &Remedy{Change: l.check.Fix.Change, Command: l.check.Fix.Command}
	f.addressed(n, p)
	devs := netDevs(n, p)
	if l.s.Live.PFC == nil || len(devs) == 0 {
		return
	}
	on, err := l.s.Live.PFC(devs[0])
	switch {
	case err != nil: // most often it has no such configuration: the switch and ECN may still help
	case len(on) == 0:
		f.Read += fmt.Sprintf("; PFC is off on %s", devs[0])
	default:
		f.Read += fmt.Sprintf("; PFC is on on %s for priority %s", devs[0], strings.Trim(fmt.Sprint(on), "[]"))
		f.fix("see that the traffic has a priority for which PFC is on, and that the switch's ports have it, too", "", "")
	}
}

// grown are a port's counters of losses that grew during proofs.
func (l *look) grown(port string) []string {
	var out []string
	for _, p := range l.pairs {
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
