// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/flap"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/stationtest"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/trial"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// ports are cables that take ports down.
func ports(devices []*memnic.Device, down map[string]bool) (list []flap.Cable) {
	for _, d := range devices {
		set := func(up bool) func() error {
			return func() error {
				d.SetPort(up)
				down[d.Name()] = !up
				return nil
			}
		}
		list = append(list, flap.Cable{NIC: d.Name(), NetDev: "eth-" + d.Name(), Cut: set(false), Mend: set(true)})
	}
	return list
}

var short = [2]time.Duration{time.Millisecond, 30 * time.Millisecond}

func flapFlags(cuts int) *params {
	return &params{
		Flags: station.Flags{Timeout: testenv.Limit(time.Minute), NIC: "b0,b1"},
		cuts:  cuts, seed: 11, depth: 8, work: []talk.Op{talk.Write, talk.Read, talk.Send}, bytes: []int64{64, 100_000},
	}
}

// Links are cut while every byte is verified: nothing is lost, each rail has lost links and is back.
func TestFlap(t *testing.T) {
	p := stationtest.Dial(t, []string{"a0", "a1"}, []string{"b0", "b1"})
	c, devices := p.Client, p.Devices
	var said stationtest.Said
	a, f, down := &app.App{Stderr: &said}, flapFlags(6), map[string]bool{}
	r := &FlapResult{Planned: f.cuts}
	over := c.Link.(*link.OverRails)
	fl := &flap.Flapper{Cables: ports(devices, down), States: over.Now, Count: f.cuts, Limit: f.Timeout, Pause: short, Down: short, Told: func(x flap.Cut) { a.Tell("%s", x.Text()) }}
	if err := flapOver(t.Context(), a, f, c, over, fl, r); err != nil {
		t.Fatal(err)
	}
	if !r.Nothing || len(r.Cuts) != f.cuts || r.Failed+r.Wrong+r.Lost+r.Twice > 0 || r.Operations == 0 || r.Verified == 0 || r.Messages == 0 || r.Pause <= 0 || len(r.Rows) != 6 {
		t.Errorf("%+v", r)
	}
	for _, x := range r.Cuts {
		if x.Down <= 0 || x.Lost < 1 || x.Back <= 0 || x.NetDev != "eth-"+x.NIC {
			t.Errorf("%+v", x)
		}
	}
	if down["b0"] || down["b1"] {
		t.Errorf("still down: %v", down)
	}
	if n := strings.Count(said.String(), "its rail was back"); n != f.cuts {
		t.Errorf("%d cuts are told of:\n%s", n, &said)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "PASS: nothing was lost: 0 operations failed, 0 wrong bytes, 0 messages lost, 0 messages duplicated") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := c.HangUp(); err != nil {
		t.Error(err)
	}
}

// losing is a connection that loses three messages.
type losing struct{ *link.OverRails }

func (l losing) Counted() link.Counted {
	n := l.OverRails.Counted()
	n.Lost += 3
	return n
}

// Bytes that are wrong, and messages that are lost, are counted, and are an error.
func TestFlapFindsLosses(t *testing.T) {
	c := stationtest.Dial(t, []string{"a0", "a1"}, []string{"b0", "b1"}).Client
	f, over := flapFlags(1), c.Link.(*link.OverRails)
	f.work = []talk.Op{talk.Read}
	// The CPU changes the server's buffer: reads return bytes that are not expected.
	fl := &flap.Flapper{States: over.Now, Cables: []flap.Cable{{NIC: "b0", Cut: func() error { return nil }, Mend: func() error { return nil }}}, Count: 0}
	r := &FlapResult{}
	real := c.Pull
	c.Pull = func(ctx context.Context) (c2 operation.Completion, err error) {
		if c2, err = real(ctx); err == nil && c2.Op == operation.Read {
			_, err = c.Buf.WriteAt([]byte{0xff, 0xfe}, 10)
		}
		return c2, err
	}
	a := &app.App{Stderr: new(stationtest.Said)}
	err := flapOver(t.Context(), a, f, c, losing{over}, fl, r)
	if !errors.Is(err, trial.ErrWrong) || r.Nothing || r.Wrong < 2 || r.Lost != 3 {
		t.Errorf("%v, %+v", err, r)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "FAIL: ") || !strings.Contains(text.String(), "3 messages lost") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := c.HangUp(); err != nil {
		t.Error(err)
	}
}

// --flap refuses flags that it does not go with.
func TestFlapFlags(t *testing.T) {
	for name, c := range map[string]struct {
		f       params
		changed string
		says    string
	}{
		"one NIC":        {params{flap: true, cuts: 1, Flags: station.Flags{NIC: "mlx5_0"}}, "", "name two or more"},
		"auto":           {params{flap: true, cuts: 1, Flags: station.Flags{NIC: "auto"}}, "", "name two or more"},
		"no cuts":        {params{flap: true, Flags: station.Flags{NIC: "a,b"}}, "", "--cuts must be 1 or more"},
		"kinds":          {params{flap: true, cuts: 1, Flags: station.Flags{NIC: "a,b"}}, "kinds", "--kinds does not go with --flap"},
		"cuts alone":     {params{cuts: 1}, "cuts", "--cuts is for --flap"},
		"batch, several": {params{Flags: station.Flags{NIC: "a,b"}}, "batch", "--batch is for one NIC"},
		"right":          {params{flap: true, cuts: 1, Flags: station.Flags{NIC: "a,b"}}, "", ""},
	} {
		err := c.f.checkFlap(func(name string) bool { return name == c.changed })
		var usage *cli.UsageError
		switch {
		case c.says == "" && err != nil, c.says != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v", name, err)
		case c.says == "" && c.f.seed == 0:
			t.Errorf("%s: no seed", name)
		}
	}
}
