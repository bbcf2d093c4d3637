// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"encoding/binary"
	"maps"
	"os"

	"github.com/cilium/ebpf"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Lost reads the loss counters, by event type.
func (l *Loader) Lost() (counts [abi.EventTypes]uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return counts, os.ErrClosed
	}
	var raw [8 * abi.EventTypes]byte
	memory, err := l.core.Maps["lost"].Memory()
	if err != nil {
		return counts, err
	}
	if _, err := memory.ReadAt(raw[:], 0); err != nil {
		return counts, err
	}
	for t := range counts {
		counts[t] = binary.NativeEndian.Uint64(raw[8*t:])
	}
	return counts, nil
}

// Missed adds up how often the kernel skipped a program, by the events that were not seen
// then. The kernel skips a program that already runs on the same CPU, and a kretprobe whose
// function runs in too many threads at once. It counts the latter since 6.7. On older kernels
// the next call of the thread finds the entry that the skipped exit left behind: see Lost.
func (l *Loader) Missed() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := maps.Clone(l.was)
	addMissed(counts, l.runs, l.links)
	return counts
}

// addMissed adds the skipped runs of programs and of kprobes, which the kernel counts apart.
func addMissed(counts map[string]uint64, runs map[*ebpf.Program]string, links []attached) {
	for p, what := range runs {
		if s, err := p.Stats(); err == nil && s.RecursionMisses > 0 {
			counts[what] += s.RecursionMisses
		}
	}
	for _, k := range links {
		if !k.probe {
			continue
		}
		if info, err := k.Info(); err == nil && info.PerfEvent() != nil {
			if probe := info.PerfEvent().Kprobe(); probe != nil && probe.Missed > 0 {
				counts[k.what] += probe.Missed
			}
		}
	}
}
