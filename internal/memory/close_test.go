// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/rc"
	"golang.org/x/sys/unix"
)

// ownedSource is a source that a core owns, and that may refuse to be closed.
type ownedSource struct {
	memSource
	refuse, closed int
}

func (o *ownedSource) Close() error {
	if o.refuse--; o.refuse >= 0 {
		return unix.EIO
	}
	o.closed++
	return nil
}

// A second Close frees what the first could not free; the first one returns an error.
func TestCloseAgain(t *testing.T) {
	n := openNIC(t)
	src := &ownedSource{memSource: memSource{mem: make([]byte, 64)}, refuse: 2}
	c := must(n.register(src, BufferOptions{}))(t)
	c.owned = src
	b := c.all(64)
	stubborn(c.reg, 1)
	if err := b.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("close while the registration does not end: %v", err)
	}
	if _, err := b.WriteAt([]byte{1}, 0); err != nil {
		t.Errorf("nothing was let go: %v", err)
	}
	for range 2 {
		if err := b.Close(); !errors.Is(err, unix.EIO) {
			t.Errorf("close while the memory is not freed: %v", err)
		}
		for name, err := range map[string]error{"WriteAt": second(b.WriteAt([]byte{1}, 0)), "Slice": second(b.Slice(0, 1)), "Sync": b.Sync()} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s without a registration: %v", name, err)
			}
		}
		if err := n.Close(); !errors.Is(err, failure.ErrInUse) {
			t.Errorf("close the NIC: %v", err)
		}
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if src.closed != 1 || src.holds != 0 || n.Stats().Pinned != 0 {
		t.Errorf("closed %d times, held %d times, %+v", src.closed, src.holds, n.Stats())
	}
}

// The NIC's Close frees memory that could not be freed in the background.
func TestReleaseAgain(t *testing.T) {
	for name, release := range map[string]func(b *Buffer) error{
		"Release": (*Buffer).Release,
		"the last slice": func(b *Buffer) error {
			s, err := b.Slice(1, 2)
			if err != nil {
				return err
			}
			if err := b.Release(); err != nil {
				return err
			}
			err = s.Close()
			return errors.Join(err, s.Close())
		},
		"the last operation": func(b *Buffer) error {
			if err := b.Use(); err != nil {
				return err
			}
			err := b.Release()
			b.core.unuse()
			return errors.Join(err, unix.EBUSY) // no caller got this error
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := openNIC(t)
			b := must(n.AllocHost(64))(t)
			stubborn(b.core.reg, 2)
			if err := release(b); !errors.Is(err, unix.EBUSY) {
				t.Errorf("%v", err)
			}
			if err := n.Close(); !errors.Is(err, unix.EBUSY) || !errors.Is(err, failure.ErrInUse) {
				t.Errorf("close the NIC, the first time: %v", err)
			}
			if err := n.Close(); err != nil {
				t.Errorf("close the NIC again: %v", err)
			}
			if n.Stats().Pinned != 0 {
				t.Errorf("%+v", n.Stats())
			}
		})
	}
}

// stubborn makes the first refuse calls of r's close fail.
func stubborn(r *rc.Registration, refuse int) {
	end := r.Close
	r.Close = func() error {
		if refuse--; refuse >= 0 {
			return unix.EBUSY
		}
		return end()
	}
}

// NICOptions.Event may call the NIC, even while the NIC is closed.
func TestEventDuringClose(t *testing.T) {
	inside, closing := make(chan struct{}), make(chan struct{})
	var n *NIC
	dev := &listeningDevice{fakeDevice: newFabric().Device("fake0", fewSGEs), done: make(chan struct{})}
	n = NewNIC(dev, NICOptions{})
	go func() {
		defer close(dev.done)
		close(inside)
		<-closing
		n.Stats()
	}()
	<-inside
	go func() {
		for dev.closes.Load() == 0 {
			runtime.Gosched()
		}
		close(closing)
	}()
	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// listeningDevice has a goroutine while it is open.
type listeningDevice struct {
	*fakeDevice
	closes atomic.Int32
	done   chan struct{}
}

func (l *listeningDevice) Close() error {
	l.closes.Add(1)
	return nil
}

func (l *listeningDevice) Ended() { <-l.done }

// Flush does not wait for READs of queue pairs that the NIC has given up.
func TestFlushGivenUp(t *testing.T) {
	n := openNIC(t)
	b := must(n.Register(&memSource{mem: make([]byte, 64), direct: true}, BufferOptions{}))(t)
	closing(t, b)
	b.core.at.Load().gpu = true
	if err := b.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	n.readBack.link.(*fakeLink).Break(unix.EIO)
	if err := b.Flush(limited(t)); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	if err := b.Flush(limited(t)); err != nil {
		t.Errorf("with new ones: %v", err)
	}
}
