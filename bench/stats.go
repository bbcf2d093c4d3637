// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// percentile returns the p-th percentile, p in [0,1], by nearest rank of
// sorted samples.
func percentile[T ~int64 | ~float64](sorted []T, p float64) T {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// ratio is the median of per-round ratios with its 10th and 90th percentile.
type ratio struct {
	Median float64 `json:"median"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
	Rounds int     `json:"rounds"`
}

func newRatio(perRound []float64) ratio {
	s := slices.Clone(perRound)
	slices.Sort(s)
	return ratio{percentile(s, 0.5), percentile(s, 0.1), percentile(s, 0.9), len(s)}
}

func (r ratio) String() string {
	return fmt.Sprintf("%.3f (%.3f-%.3f)", r.Median, r.P10, r.P90)
}

// samples collects one side's durations, slice by slice.
type samples struct {
	all []time.Duration
}

// add takes a slice's durations and returns their median.
func (s *samples) add(slice []time.Duration) time.Duration {
	sorted := slices.Clone(slice)
	slices.Sort(sorted)
	s.all = append(s.all, slice...)
	return percentile(sorted, 0.5)
}

// quantiles returns the median and the 99th percentile over all slices.
func (s *samples) quantiles() (p50, p99 time.Duration) {
	sorted := slices.Clone(s.all)
	slices.Sort(sorted)
	return percentile(sorted, 0.5), percentile(sorted, 0.99)
}
