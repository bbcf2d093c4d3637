// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/formats"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// Look is one look at a machine.
type Look struct {
	formats.Input               // the run, or why there is none
	Ended         time.Time     // when the look ended
	Took          time.Duration // how long it took
	Version       string        // of p2pcheck
	Revision      string        // of the repository that p2pcheck was built from
}

// desc describes a metric of p2pcheck.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("p2pcheck_"+name, help, labels, nil)
}

var (
	build        = desc("build_info", "1, with the version of p2pcheck, of the Go that built it, and the revision of its source.", "version", "goversion", "revision")
	status       = desc("status", "Exit status of p2pcheck: 0 good, 1 not, 2 nothing could be read, 3 something is unknown.")
	ended        = desc("last_look_timestamp_seconds", "When the machine was last read, in seconds since 1970.")
	took         = desc("look_duration_seconds", "How long it took to read the machine.")
	problems     = desc("errors", "Number of things that could not be read, by the kind of the error.", "kind")
	outcome      = desc("pair_outcome", "1 for the outcome of the pair.", "gpu", "nic", "outcome")
	distance     = desc("pair_distance", "The kernel's distance, -1 if it supports no way.", "gpu", "nic")
	proof        = desc("pair_proof", "1 for the outcome of the pair's live proof.", "gpu", "nic", "outcome")
	contradicted = desc("predictions_contradicted", "Pairs whose proof is against the prediction.")
	checks       = desc("check", "1 for the worst result of the check.", "id", "result")
)

// Describe implements prometheus.Collector.
func (l Look) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{build, status, ended, took, problems, outcome, distance, proof, contradicted, checks} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (l Look) Collect(to chan<- prometheus.Metric) {
	s := sender{to: to, sent: map[series]bool{}}
	s.send(build, 1, l.Version, runtime.Version(), l.Revision)
	s.send(status, float64(l.Status))
	s.send(ended, float64(l.Ended.UnixMilli())/1e3)
	s.send(took, l.Took.Seconds())
	count := map[string]int{}
	for _, e := range l.Errors {
		kind := e.Kind
		if !slices.Contains(cli.Kinds, kind) {
			kind = cli.KindOther
		}
		count[kind]++
	}
	for _, kind := range cli.Kinds { // also those of which there is none: their series do not come and go
		s.send(problems, float64(count[kind]), kind)
	}
	if r := l.Found; r != nil {
		s.pairs(r)
		worst := result.Worst(r.Checks)
		for _, id := range result.IDs(r.Checks) {
			s.send(checks, 1, id, worst[id])
		}
	}
}

// pairs sends the metrics of pairs.
func (s sender) pairs(r *result.Run) {
	for _, p := range r.Pairs {
		if p.Counts {
			s.send(outcome, 1, p.GPU, p.NIC, p.Outcome)
			if d := p.Decision.Distance; d != nil {
				s.send(distance, float64(*d), p.GPU, p.NIC)
			}
		}
		if r.Live != nil && p.Proof != nil {
			s.send(proof, 1, p.GPU, p.NIC, result.Became(p))
		}
	}
	if r.Live != nil {
		s.send(contradicted, float64(r.Live.Contradicted))
	}
}

// sender sends each series once. Where the files of a machine give two devices one name, the first counts.
type sender struct {
	to   chan<- prometheus.Metric
	sent map[series]bool
}

// series is a metric and the values of its labels but the last, which tells what is so of one thing.
type series struct {
	*prometheus.Desc
	labels [2]string
}

func (s sender) send(d *prometheus.Desc, value float64, labels ...string) {
	key := series{Desc: d}
	for i, text := range labels {
		labels[i] = terminal.Escape(text) // valid UTF-8, too, as the library asks for
		if i < len(key.labels) {
			key.labels[i] = labels[i]
		}
	}
	if !s.sent[key] {
		s.sent[key] = true
		s.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
}

// Gather returns the metrics of a look.
func Gather(l Look) ([]*dto.MetricFamily, error) {
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(l); err != nil {
		return nil, err
	}
	return registry.Gather()
}

// Write writes metrics in Prometheus' text format.
func Write(w io.Writer, families []*dto.MetricFamily) error {
	encoder := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	var errs []error
	for _, f := range families {
		errs = append(errs, encoder.Encode(f))
	}
	return errors.Join(errs...)
}
