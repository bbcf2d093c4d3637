// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// pollEvery is how often the ring is read when nothing wakes the reader.
const pollEvery = 25 * time.Millisecond

// maxBatch is how many events are joined before the loss counters are read.
const maxBatch = 1024

// begin starts a round to the end of the ring, and returns until when the round may wait for
// an event.
func (t *Tracer) begin() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving = t.asked
	if t.serving > t.served {
		return time.Now()
	}
	return time.Now().Add(pollEvery)
}

// run reads the ring until it is closed.
func (t *Tracer) run() {
	defer close(t.done)
	var raw ringbuf.Record
	for {
		t.reader.SetDeadline(t.begin())
		var drained bool
		for n := 0; n < maxBatch && !drained; n++ {
			err := t.reader.ReadInto(&raw)
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed) {
				drained = true
				break
			}
			if err != nil {
				t.fail(err)
				return
			}
			t.take(abi.Decode(raw.RawSample))
			drained = raw.Remaining == 0
		}
		if t.deliver(drained) {
			_ = t.loader.Reclaim() // or the next time
		}
	}
}

// take takes one event out of the ring.
func (t *Tracer) take(ev any, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch x, isExport := ev.(*abi.Export); {
	case err != nil:
		t.loss.Undecoded++
	case isExport && x.Event.Head.Type == abi.EventModule:
		t.moduleCame(abi.Text(x.Exporter[:]))
	default:
		t.join.handle(ev)
	}
}

func (t *Tracer) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !errors.Is(err, os.ErrClosed) {
		t.failed = &failure.Error{Op: "trace", Device: "ring buffer", Err: err}
	}
	t.changed.Broadcast()
}

// deliver hands out a batch. drained: the batch reached the end of the ring. deliver reports
// whether it has looked for skipped runs.
func (t *Tracer) deliver(drained bool) (looked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	looked = len(t.join.out) > 0 || t.serving > t.served || time.Since(t.counted) > time.Second
	t.count(looked)
	t.queue = append(t.queue, t.join.take()...)
	if over := len(t.queue) - t.cfg.MaxEvents; over > 0 {
		t.queue = append([]Event(nil), t.queue[over:]...)
		t.loss.Dropped += uint64(over)
	}
	if drained {
		t.served = t.serving
	}
	t.changed.Broadcast()
	return looked
}

// count reads the counters of lost events and, if skipped, with a system call for each program,
// those of skipped runs. It is called after the last event was joined and before a verdict is
// handed out: a loss that concerns this event was counted before the program sent the event, so
// the verdict takes it into account. If the counters cannot be read, no verdict is certain. t.mu is
// held.
func (t *Tracer) count(skipped bool) {
	switch counts, err := t.lostCount(); {
	case errors.Is(err, os.ErrClosed): // the programs are gone: the last reading counts
	case err != nil:
		n, _ := errno.Of(err)
		t.join.lose("an unknown number of events, whose counters could not be read: "+errno.Text(n), monotonic())
	default:
		if words := lossWords(t.lost, counts); words != "" {
			t.join.lose(words, monotonic())
		}
		if counts[abi.EventModule] != t.lost[abi.EventModule] {
			t.moduleCame("")
		}
		t.lost = counts
	}
	if !skipped {
		return
	}
	t.counted = time.Now()
	missed := t.missedCount()
	if words := missedWords(t.loss.Missed, missed); words != "" {
		t.join.lose(words, monotonic())
		if missed[loader.WhatModules] != t.loss.Missed[loader.WhatModules] {
			t.moduleCame("")
		}
		t.loss.Missed = missed
	}
}

// monotonic is the programs' clock.
func monotonic() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // Open had it
	return uint64(ts.Nano())
}
