// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path"
	"strconv"
)

// Discards are the names of counters of the IP layer on the NIC. They do not count
// packets that were lost in the network.
var Discards = []string{"ip4InDiscards", "ip6InDiscards"}

// LossCounters are the counters in hw_counters of a port by which drivers of 6.1 to 7.2
// count packets that were lost, or had to be sent again. A network without loss leaves
// them at zero. Counters of a slow receiver (RNR, out_of_buffer) are not in the list.
var LossCounters = []string{
	// mlx5, and bnxt_re of 7.2
	"out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "req_transport_retries_exceeded",
	"roce_adp_retrans", "roce_adp_retrans_to",
	// bnxt_re
	"oos_drop_count", "seq_err_naks_rcvd", "missing_resp", "to_retransmits", "max_retry_exceeded", "rx_roce_discards",
	// irdma: counters of the third generation, and of the IP layer of all generations
	"Rcvd Out of order packets", "Nak Sequence Error", "Nak Sequence Error Implied", "RTO", "ip4InDiscards", "ip6InDiscards",
	// efa: its network is not Ethernet, and it sends packets again by itself
	"rx_drops", "retrans_timeout_events",
	// mana_ib
	"responder_oos", "requester_oos_nak", "requester_implicit_nak", "requester_timeout", "requester_retries_exceeded",
	// mlx4, cxgb4
	"rq_num_oos", "sq_num_oos", "sq_num_to", "ip4RetransSegs", "ip6RetransSegs",
}

// Count is a counter and its value.
type Count struct {
	Name string
	N    uint64
}

// String returns the counter's name and value: "rx_drops 3".
func (c Count) String() string { return c.Name + " " + strconv.FormatUint(c.N, 10) }

// Losses reads the loss counters that a port of a NIC ("mlx5_0") has. bad is the first
// counter that cannot be read; its Err is nil if there is none.
func (m *Machine) Losses(nic string, port int) (all []Count, bad Reading) {
	dir := path.Join("sys/class/infiniband", nic, "ports", strconv.Itoa(port), "hw_counters")
	for _, name := range LossCounters {
		r := m.Read(dir, name)
		n, ok := r.Number()
		switch {
		case r.Gone():
		case ok:
			all = append(all, Count{name, n})
		case bad.Where == "":
			if bad = r; bad.Err == nil {
				bad.Err = errNoCount
			}
		}
	}
	return all, bad
}
