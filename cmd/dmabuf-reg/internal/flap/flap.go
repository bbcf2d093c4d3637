// SPDX-License-Identifier: Apache-2.0

package flap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/failure"
)

// Cut describes one cut of a link.
type Cut struct {
	NIC    string        `json:"nic"`     // the name of the NIC
	NetDev string        `json:"netdev"`  // the network device of which the link was cut
	At     time.Duration `json:"at_ns"`   // when the link was cut, since the run began
	Down   time.Duration `json:"down_ns"` // how long the link was cut
	// Back is the time from the link's repair until its rail had a link; 0 if it had none within
	// --timeout, or had not lost it.
	Back time.Duration `json:"back_ns"`
	Lost int           `json:"lost_links"` // how many links the rail lost; 0 if the cut was too short to be noticed

	away bool // its rail was not seen to be back
}

// Flapper cuts the links of NICs, one after the other.
type Flapper struct {
	Cables []Cable
	States func() ([]link.RailState, error)
	Random *rand.Rand
	Count  int           // how many cuts there are to be
	Limit  time.Duration // for a rail to be back
	begun  time.Time
	// Bounds of the time between two cuts, and of the time that a link is cut.
	Pause, Down [2]time.Duration
	Told        func(Cut)
	Cuts        []Cut
}

// Times of `bench --flap`.
var (
	Pauses = [2]time.Duration{500 * time.Millisecond, 2 * time.Second}
	Downs  = [2]time.Duration{500 * time.Millisecond, 4 * time.Second}
)

const (
	lookAtRails = 5 * time.Millisecond
	unnoticed   = 4 * time.Second // a link that is silent is given up in 3 s
)

// Run cuts and mends. It returns when the links were cut as often as wanted and are back, when ctx
// ends, or when a rail is not back in time. No link is cut when it returns.
func (f *Flapper) Run(ctx context.Context) error {
	f.begun = time.Now()
	for len(f.Cuts) < f.Count {
		if !f.sleep(ctx, f.Pause) {
			return ctx.Err()
		}
		x := &f.Cables[f.Random.IntN(len(f.Cables))]
		if err := f.wait(ctx, "wait for another rail than "+x.NIC, func() (bool, error) { return f.otherUp(x.NIC) }); err != nil {
			return err
		}
		if err := f.flap(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// flap cuts a link, mends it, and waits until its rails are back.
func (f *Flapper) flap(ctx context.Context, x *Cable) error {
	before, err := f.lost(x.NIC)
	if err != nil {
		return err
	}
	// A signal ends ctx, and the link is mended. A second one must not end the program before that.
	later := make(chan os.Signal, 1)
	signal.Notify(later, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(later)
	began := time.Now()
	cut := Cut{NIC: x.NIC, NetDev: x.NetDev, At: began.Sub(f.begun)}
	err = x.Cut()
	if err == nil {
		f.stayDown(ctx, x.NIC)
	}
	err = errors.Join(err, x.Mend()) // also where the cut has failed: it may have been made
	mended := time.Now()
	cut.Down = mended.Sub(began)
	if err == nil {
		err = f.wait(ctx, "wait for the rail of "+x.NIC, func() (bool, error) {
			up, lost, err := f.rail(x.NIC)
			cut.Lost = lost - before
			return up && (cut.Lost > 0 || time.Since(mended) > unnoticed), err
		})
	}
	if err == nil && cut.Lost > 0 {
		cut.Back = time.Since(mended)
	}
	cut.away = err != nil
	f.Cuts = append(f.Cuts, cut)
	f.Told(cut)
	return err
}

// stayDown waits for a random time, or until ctx ends or no other rail has a link.
func (f *Flapper) stayDown(ctx context.Context, nic string) {
	for end := time.Now().Add(f.between(f.Down)); time.Now().Before(end); {
		if other, err := f.otherUp(nic); err != nil || !other {
			return
		}
		select {
		case <-time.After(lookAtRails):
		case <-ctx.Done():
			return
		}
	}
}

func (f *Flapper) between(span [2]time.Duration) time.Duration {
	return span[0] + time.Duration(f.Random.Int64N(int64(span[1]-span[0])+1))
}

func (f *Flapper) sleep(ctx context.Context, span [2]time.Duration) bool {
	select {
	case <-time.After(f.between(span)):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// wait waits until so returns true. It returns an error after the limit.
func (f *Flapper) wait(ctx context.Context, what string, so func() (bool, error)) error {
	limit := max(f.Limit, unnoticed+time.Second)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := so()
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(lookAtRails):
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &failure.Error{Op: what, Detail: fmt.Sprintf("it has no link after %v", limit), Remedy: "see stderr and the kernel's log for why, or give a longer --timeout", Err: limited.Err()}
		}
	}
}

// otherUp reports whether a rail of another NIC has a link.
func (f *Flapper) otherUp(nic string) (bool, error) {
	list, err := f.States()
	for _, r := range list {
		if r.Path.NIC != nic && r.Up {
			return true, err
		}
	}
	return false, err
}

// rail reports whether all rails of a NIC have a link, and how many links they have lost.
func (f *Flapper) rail(nic string) (up bool, lost int, err error) {
	list, err := f.States()
	up = true
	for _, r := range list {
		if r.Path.NIC == nic {
			up, lost = up && r.Up, lost+r.Lost
		}
	}
	return up, lost, err
}

func (f *Flapper) lost(nic string) (int, error) {
	_, n, err := f.rail(nic)
	return n, err
}

// Text says what was cut, and what came of it.
func (x *Cut) Text() string {
	text := fmt.Sprintf("cut the link of %s (network device %s) for %v", x.NIC, x.NetDev, x.Down.Round(time.Millisecond))
	switch {
	case x.Back > 0:
		return text + fmt.Sprintf("; its rail was back %v after", x.Back.Round(time.Millisecond))
	case x.away:
		return text + "; its rail was not seen to be back"
	}
	return text + "; its rail has not lost its link"
}
