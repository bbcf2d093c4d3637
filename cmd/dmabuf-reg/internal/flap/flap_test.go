// SPDX-License-Identifier: Apache-2.0

package flap

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// The last rail that lives is never cut; a link is put back when the run is interrupted, when the cut
// itself fails, and when no other rail lives any more. The same seed cuts the same NICs.
func TestFlapperIsCareful(t *testing.T) {
	up := map[string]bool{"b0": true, "b1": true}
	lost := map[string]int{}
	var log []string
	fails := errors.New("it cannot be cut")
	states := func() (list []link.RailState, err error) {
		for _, n := range []string{"b0", "b1"} {
			s := link.RailState{State: rails.State{Up: up[n], Lost: lost[n]}}
			s.Path.NIC = n
			list = append(list, s)
		}
		return list, nil
	}
	var cutErr error
	onCut := func() {}
	cables := func() (list []Cable) {
		for _, n := range []string{"b0", "b1"} {
			list = append(list, Cable{NIC: n, NetDev: "eth-" + n, Cut: func() error {
				if !up["b0"] || !up["b1"] {
					t.Errorf("%s is cut with %v", n, up)
				}
				up[n] = false
				log = append(log, "cut "+n)
				onCut()
				return cutErr
			}, Mend: func() error {
				up[n] = true
				lost[n]++
				log = append(log, "mend "+n)
				return nil
			}})
		}
		return list
	}
	run := func(ctx context.Context, seed uint64, count int, down [2]time.Duration) ([]Cut, error) {
		f := &Flapper{Cables: cables(), States: states, Random: rand.New(rand.NewPCG(seed, 0)), Count: count, Limit: 50 * time.Millisecond, Pause: [2]time.Duration{}, Down: down, Told: func(Cut) {}}
		err := f.Run(ctx)
		return f.Cuts, err
	}
	none := [2]time.Duration{}
	if _, err := run(t.Context(), 1, 8, none); err != nil {
		t.Error(err)
	}
	first := slices.Clone(log)
	log = nil
	if _, err := run(t.Context(), 1, 8, none); err != nil || !slices.Equal(first, log) || len(log) != 16 {
		t.Errorf("%v\n%q\n%q", err, first, log)
	}

	// Interrupted while a link is cut.
	log = nil
	ctx, cancel := context.WithCancel(t.Context())
	onCut = cancel
	if _, err := run(ctx, 1, 8, [2]time.Duration{time.Hour, time.Hour}); !errors.Is(err, context.Canceled) || len(log) != 2 || !strings.HasPrefix(log[1], "mend") {
		t.Errorf("%v, %q", err, log)
	}

	onCut = func() {}

	// The cut fails, and may have been made.
	log, cutErr = nil, fails
	if _, err := run(t.Context(), 1, 8, none); !errors.Is(err, fails) || len(log) != 2 || !strings.HasPrefix(log[1], "mend") {
		t.Errorf("%v, %q", err, log)
	}
	cutErr = nil

	// There is no other rail.
	log, up["b0"], up["b1"] = nil, false, false
	if _, err := run(t.Context(), 1, 8, none); !errors.Is(err, context.DeadlineExceeded) || len(log) != 0 {
		t.Errorf("%v, %q", err, log)
	}
}

// What became of a cut, in words.
func TestCutText(t *testing.T) {
	for _, c := range []struct {
		x    Cut
		says string
	}{
		{Cut{NIC: "mlx5_0", NetDev: "eth1", Down: 1234567890, Back: 5e6, Lost: 1}, "cut the link of mlx5_0 (network device eth1) for 1.235s; its rail was back 5ms after"},
		{Cut{NIC: "mlx5_0", NetDev: "eth1", Down: 5e8}, "cut the link of mlx5_0 (network device eth1) for 500ms; its rail has not lost its link"},
		{Cut{NIC: "mlx5_0", NetDev: "eth1", Down: 5e8, away: true}, "cut the link of mlx5_0 (network device eth1) for 500ms; its rail was not seen to be back"},
	} {
		if got := c.x.Text(); got != c.says {
			t.Errorf("%q, want %q", got, c.says)
		}
	}
}
