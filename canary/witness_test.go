// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// Whichever case comes first, the witness finds the nonce in the buffer while
// the region lives, or is not called; and no case fails because of it.
func TestWitness(t *testing.T) {
	called := 0
	for _, size := range []int64{page(), 2 * page(), 64*page() + 8} {
		for _, name := range CaseNames() {
			opt := fakeOptions()
			opt.Cases = []string{name}
			w := newFakeWire(size, opt)
			opt.Witness = func(_ context.Context, nonce []byte) error {
				called++
				if w.open != 1 || bytes.Count(w.mem, nonce) != 1 {
					t.Errorf("%q of %d bytes: %d regions, %d nonces", name, size, w.open, bytes.Count(w.mem, nonce))
				}
				return nil
			}
			rep := &Report{}
			if err := run(t.Context(), w, w.mem, opt, rep); err != nil && !errors.Is(err, ErrNothingChecked) {
				t.Errorf("%q of %d bytes: %v", name, size, err)
			}
		}
	}
	if called < len(CaseNames()) {
		t.Errorf("called %d times", called)
	}
}

// A witness that fails fails the case, and nothing stays registered.
func TestWitnessFails(t *testing.T) {
	opt := fakeOptions()
	blind := errors.New("no BAR could be looked at")
	opt.Witness = func(context.Context, []byte) error { return blind }
	w := newFakeWire(8*page(), opt)
	rep := &Report{}
	if err := run(t.Context(), w, w.mem, opt, rep); !errors.Is(err, blind) || rep.OK || w.open != 0 {
		t.Errorf("%v, OK %v, %d regions", err, rep.OK, w.open)
	}
}
