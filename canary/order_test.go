// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// watched is memory that one writes and another looks at, and that tells when the
// data at its beginning was looked at.
type watched struct {
	mu sync.Mutex
	memory
	looked chan struct{}
}

func (w *watched) ReadAt(p []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if off == 0 {
		select {
		case w.looked <- struct{}{}:
		default: // no test has taken the last report yet
		}
	}
	return w.memory.ReadAt(p, off)
}

func (w *watched) WriteAt(p []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.memory.WriteAt(p, off)
}

// A flag that overtakes its data is seen to, and data that never comes is not
// taken for late.
func TestOrder(t *testing.T) {
	const flag = 32 << 10
	type writer func(v *watched, src []byte, round int) error
	data := func(v *watched, src []byte) { v.WriteAt(src[:orderData], 0) }
	mark := func(v *watched, src []byte) { v.WriteAt(src[orderData:orderData+8], flag) }
	inOrder := writer(func(v *watched, src []byte, _ int) error {
		data(v, src)
		mark(v, src)
		return nil
	})
	for name, c := range map[string]struct {
		write writer
		want  Ordering
		err   func(error) bool
	}{
		"in order": {inOrder, Ordering{Rounds: 8}, nil},
		"every second overtakes": {func(v *watched, src []byte, round int) error {
			if round%2 == 0 {
				return inOrder(v, src, round)
			}
			v.WriteAt(src[:1000], 0)
			select {
			case <-v.looked: // in the round before
			default:
			}
			mark(v, src)
			<-v.looked
			data(v, src)
			return nil
		}, Ordering{Rounds: 8, Early: 4, Offset: 1000}, nil},
		"the data never comes": {func(v *watched, src []byte, _ int) error {
			mark(v, src)
			return nil
		}, Ordering{Rounds: 1, Early: 1}, func(err error) bool {
			var m *Mismatch
			return errors.As(err, &m) && m.Offset == 0 && m.Count > orderData/2
		}},
		"the flag never comes": {func(v *watched, src []byte, _ int) error {
			data(v, src)
			return nil
		}, Ordering{}, func(err error) bool {
			var m *Mismatch
			return errors.As(err, &m) && m.Offset == flag && m.Count == 8
		}},
		"the link breaks": {func(*watched, []byte, int) error { return errFake }, Ordering{}, func(err error) bool { return errors.Is(err, errFake) }},
	} {
		t.Run(name, func(t *testing.T) {
			v := &watched{memory: make(memory, flag+4096), looked: make(chan struct{}, 1)}
			src := make([]byte, orderData+8)
			var round atomic.Int64
			got, err := order(t.Context(), v, flag, OrderOptions{Rounds: 8}, src, func(context.Context) error {
				return c.write(v, src, int(round.Add(1)-1))
			})
			if c.err == nil && err != nil || c.err != nil && !c.err(err) {
				t.Errorf("error %v", err)
			}
			if got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
