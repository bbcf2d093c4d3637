// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// ports are cables that take ports down.
func ports(devices []*memnic.Device, down map[string]bool) (list []cable) {
	for _, d := range devices {
		set := func(up bool) func() error {
			return func() error {
				d.SetPort(up)
				down[d.Name()] = !up
				return nil
			}
		}
		list = append(list, cable{nic: d.Name(), netdev: "eth-" + d.Name(), cut: set(false), mend: set(true)})
	}
	return list
}

var short = [2]time.Duration{time.Millisecond, 30 * time.Millisecond}

func flapFlags(cuts int) *benchFlags {
	return &benchFlags{
		stationFlags: stationFlags{timeout: testenv.Limit(time.Minute), nic: "b0,b1"},
		cuts:         cuts, seed: 11, depth: 8, work: []talk.Op{talk.Write, talk.Read, talk.Send}, bytes: []int64{64, 100_000},
	}
}

// Links are cut while every byte is verified: nothing is lost, each rail has lost links and is back.
func TestFlap(t *testing.T) {
	p := Dial(t, []string{"a0", "a1"}, []string{"b0", "b1"})
	c, devices := p.Client, p.Devices
	var said Said
	a, f, down := &app.App{Stderr: &said}, flapFlags(6), map[string]bool{}
	r := &flapResult{Planned: f.cuts}
	over := c.link.(*overRails)
	fl := &flapper{cables: ports(devices, down), states: over.now, count: f.cuts, limit: f.timeout, pause: short, down: short, told: func(x cutDoc) { a.Tell("%s", x.text()) }}
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
	if err := c.hangUp(); err != nil {
		t.Error(err)
	}
}

// losing is a connection that loses three messages.
type losing struct{ *overRails }

func (l losing) counted() counted {
	n := l.overRails.counted()
	n.lost += 3
	return n
}

// Bytes that are wrong, and messages that are lost, are counted, and are an error.
func TestFlapFindsLosses(t *testing.T) {
	c := Dial(t, []string{"a0", "a1"}, []string{"b0", "b1"}).Client
	f, over := flapFlags(1), c.link.(*overRails)
	f.work = []talk.Op{talk.Read}
	// The CPU changes the server's buffer: reads return bytes that are not expected.
	fl := &flapper{states: over.now, cables: []cable{{nic: "b0", cut: func() error { return nil }, mend: func() error { return nil }}}, count: 0}
	r := &flapResult{}
	real := c.pull
	c.pull = func(ctx context.Context) (c2 operation.Completion, err error) {
		if c2, err = real(ctx); err == nil && c2.Op == operation.Read {
			_, err = c.buf.WriteAt([]byte{0xff, 0xfe}, 10)
		}
		return c2, err
	}
	a := &app.App{Stderr: new(Said)}
	err := flapOver(t.Context(), a, f, c, losing{over}, fl, r)
	if !errors.Is(err, errWrong) || r.Nothing || r.Wrong < 2 || r.Lost != 3 {
		t.Errorf("%v, %+v", err, r)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "FAIL: ") || !strings.Contains(text.String(), "3 messages lost") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := c.hangUp(); err != nil {
		t.Error(err)
	}
}

// --flap refuses flags that it does not go with.
func TestFlapFlags(t *testing.T) {
	for name, c := range map[string]struct {
		f       benchFlags
		changed string
		says    string
	}{
		"one NIC":        {benchFlags{flap: true, cuts: 1, stationFlags: stationFlags{nic: "mlx5_0"}}, "", "name two or more"},
		"auto":           {benchFlags{flap: true, cuts: 1, stationFlags: stationFlags{nic: "auto"}}, "", "name two or more"},
		"no cuts":        {benchFlags{flap: true, stationFlags: stationFlags{nic: "a,b"}}, "", "--cuts must be 1 or more"},
		"kinds":          {benchFlags{flap: true, cuts: 1, stationFlags: stationFlags{nic: "a,b"}}, "kinds", "--kinds does not go with --flap"},
		"cuts alone":     {benchFlags{cuts: 1}, "cuts", "--cuts is for --flap"},
		"batch, several": {benchFlags{stationFlags: stationFlags{nic: "a,b"}}, "batch", "--batch is for one NIC"},
		"right":          {benchFlags{flap: true, cuts: 1, stationFlags: stationFlags{nic: "a,b"}}, "", ""},
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
