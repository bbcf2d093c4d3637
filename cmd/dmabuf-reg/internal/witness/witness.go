// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"errors"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// Witness watches this process's registrations for --trace. A nil one answers
// nothing: it was not asked for.
type Witness struct {
	tracer *trace.Tracer
	prover placement.Prover
}

// New starts to trace, if that is wanted; a Witness that is not wanted is nil.
func New(wanted bool) (*Witness, error) {
	if !wanted {
		return nil, nil
	}
	t, err := OpenTracer(trace.Config{Self: true, RDMAOnly: true, NoInventory: true})
	if err != nil {
		return nil, err
	}
	return &Witness{t, t}, nil
}

// Close ends the trace.
func (w *Witness) Close() error {
	if w == nil {
		return nil
	}
	return w.tracer.Close()
}

// testimony bounds how long a registration that was made may take to be seen.
const testimony = 30 * time.Second

// Place says where a registration that lives has its bytes, nil without a
// tracer.
func (w *Witness) Place(ctx context.Context, nic string, lkey uint32) (*placement.Placement, error) {
	if w == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, testimony)
	defer cancel()
	p, err := w.prover.Prove(ctx, placement.Key{Device: nic, LKey: lkey})
	if err != nil {
		return nil, err
	}
	return &p, nil
}

// provable is a registered buffer, which can ask a tracer where its bytes are.
type provable interface {
	Prove(context.Context, placement.Prover) (placement.Placement, error)
}

// Buffer says where a registered buffer has its bytes.
func (w *Witness) Buffer(ctx context.Context, b provable) (placement.Placement, error) {
	ctx, cancel := context.WithTimeout(ctx, testimony)
	defer cancel()
	return b.Prove(ctx, w.prover)
}

// Why says what kept a registration's bytes from its GPU's memory, "" if that was
// not seen.
func (w *Witness) Why(nic string, lkey uint32) string {
	if w == nil {
		return ""
	}
	for _, r := range w.tracer.Records() {
		switch {
		case r.MR == nil || r.MR.LKey != lkey || r.RDMADevice != nic:
		case r.DemotedBy != "":
			return "demoted by " + r.DemotedBy + ", which may not use peer-to-peer"
		default:
			return r.Unreachable
		}
	}
	return ""
}

// Refusal explains the newest registration of this process that failed, nil if
// none was seen, and lets its error say what is proven now. Where our own checks
// refused, the kernel has not been asked.
func (w *Witness) Refusal(ctx context.Context, err error) *trace.Failure {
	var e *ibvfd.RegError
	if w == nil || errors.As(err, &e) && e.Latest <= fault.StageProvider {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, testimony)
	defer cancel()
	f := w.tracer.Refusal(ctx)
	if f == nil || e == nil || f.Errno != e.Errno {
		return f
	}
	learn(e, f)
	return f
}

// learn puts into a registration's error what the trace has proven: the stage, and
// the cause where a rule of the exporter's driver picks it, or where the error had
// only a guess from the errno.
func learn(e *ibvfd.RegError, f *trace.Failure) {
	at, known := stages[f.Stage]
	if known {
		e.Earliest, e.Latest = at, at
	}
	if f.Cause != "" && e.Cause.UnmarshalText([]byte(f.Cause)) == nil {
		e.Detail, e.Remedy = f.Detail, f.Remedy
		return
	}
	guessed := e.Cause == fault.CauseNotSupported && known && at != fault.StageUverbs
	if e.Cause == fault.CauseUnknown || guessed && f.Detail != "" {
		e.Detail = f.Detail
		switch {
		case f.Remedy != "":
			e.Remedy = f.Remedy
		case guessed && at != fault.StageDriver:
			e.Remedy = "try memory of another kind, or another NIC"
		}
	}
}

// stages are the trace's, as a registration's error has them.
var stages = map[trace.Stage]fault.Stage{
	trace.StageUverbs: fault.StageUverbs, trace.StageGet: fault.StageGet, trace.StageRange: fault.StageGet,
	trace.StageAttach: fault.StageAttach, trace.StagePin: fault.StagePin, trace.StageMap: fault.StageMap,
	trace.StageVmap: fault.StageMap, trace.StageDriver: fault.StageDriver,
}

// OpenTracer says by the exit status whether tracing could work here at all.
func OpenTracer(c trace.Config) (*trace.Tracer, error) {
	t, err := trace.Open(c)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, &cli.Unavailable{Err: err}
	}
	return t, err
}
