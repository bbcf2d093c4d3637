// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
)

// row is the comparison of one exporter at one size.
type row struct {
	Exporter string        `json:"exporter"`
	Size     int64         `json:"size_bytes"`
	GoP50    time.Duration `json:"go_p50_ns"`
	GoP99    time.Duration `json:"go_p99_ns"`
	CP50     time.Duration `json:"c_p50_ns"`
	CP99     time.Duration `json:"c_p99_ns"`
	GoOverC  ratio         `json:"go_over_c_p50"`
	COverC   ratio         `json:"c_over_c_p50"`
}

// each compares every exporter at every size. It returns the rows it got even
// when a later one fails.
func (opt options) each(compare func(spec string, size int64) (row, error)) ([]row, error) {
	specs := opt.exporters
	if len(specs) == 0 {
		for _, d := range gpualloc.Discover(gpualloc.Env{}) {
			if d.Available {
				specs = append(specs, d.Spec)
			}
		}
	}
	var rows []row
	for _, spec := range specs {
		for _, size := range opt.sizes {
			r, err := compare(spec, size)
			if errors.Is(err, errSkip) {
				fmt.Fprintf(os.Stderr, "bench: %s, %d bytes left out: %v\n", spec, size, err)
				continue
			}
			if err != nil {
				return rows, fmt.Errorf("%s, %d bytes: %w", spec, size, err)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// errSkip marks a combination that there is not.
var errSkip = errors.New("not offered")

// openAllocator opens an exporter that can make buffers of size bytes.
func openAllocator(spec string, size int64) (gpualloc.Allocator, error) {
	alloc, err := gpualloc.Open(spec, gpualloc.Env{})
	if err != nil {
		return nil, err
	}
	if most := alloc.Describe().MaxSize; most > 0 && size > most {
		_ = alloc.Close()
		return nil, fmt.Errorf("%w: the exporter's limit is %d bytes", errSkip, most)
	}
	return alloc, nil
}

// side registers and deregisters n times and returns each round's duration.
type side func(n int) ([]time.Duration, error)

// alternate runs the three sides in turns. Each round begins with the next side, so
// that a drift of the machine does not favour one.
func alternate(ctx context.Context, opt options, r row, sides ...side) (row, error) {
	n, err := slicePasses(opt.slice, sides[1])
	if err != nil {
		return r, err
	}
	collected := make([]samples, len(sides))
	var goOverC, cOverC []float64
	for round := range opt.rounds {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		medians := make([]time.Duration, len(sides))
		for i := range sides {
			k := (i + round) % len(sides)
			ns, err := sides[k](n)
			if err != nil {
				return r, err
			}
			medians[k] = collected[k].add(ns)
		}
		goOverC = append(goOverC, float64(medians[0])/float64(medians[1]))
		cOverC = append(cOverC, float64(medians[2])/float64(medians[1]))
	}
	r.GoP50, r.GoP99 = collected[0].quantiles()
	r.CP50, r.CP99 = collected[1].quantiles()
	r.GoOverC, r.COverC = newRatio(goOverC), newRatio(cOverC)
	return r, nil
}

// slicePasses finds how many passes of s fill a turn, after a warm-up.
func slicePasses(turn time.Duration, s side) (int, error) {
	const warmup = 20
	ns, err := s(warmup)
	if err != nil {
		return 0, err
	}
	var w samples
	each := max(w.add(ns), time.Microsecond)
	return int(min(max(turn/each, 1), 20000)), nil
}
