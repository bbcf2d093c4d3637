// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// After Unexport, and another Export of the name, the peer imports the new memory, even if it
// learns of it by a message, which takes another way than the names.
func TestExportAnew(t *testing.T) {
	w := newWorld(t, Config{})
	memory := []*Buffer{w.host(w.b, 8), w.host(w.b, 16)}
	for i := range 500 {
		m := memory[i%2]
		if i > 0 {
			w.ok(w.cb.Unexport("memory"))
		}
		w.ok(w.cb.Export("memory", m.All(), ReadWrite))
		w.ok(w.cb.Send(limited(t), nil))
		must(w.ca.Receive(limited(t)))(t)
		if r := must(w.ca.Import(limited(t), "memory"))(t); r.Size() != m.Size() {
			t.Fatalf("round %d: the old memory was imported", i)
		}
	}
	w.ok(w.cb.Unexport("memory"))
	soon, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if r, err := w.ca.Import(soon, "memory"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not exported it") {
		t.Errorf("%v was imported, which is withdrawn: %v", r, err)
	}
	// Both sides withdraw at once.
	done := make(chan error)
	for _, c := range []*Conn{w.ca, w.cb} {
		own := w.host(c.fabric, 8)
		go func() {
			for range 100 {
				if err := c.Export("own", own.All(), ReadOnly); err != nil {
					done <- err
					return
				}
				if err := c.Unexport("own"); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		w.ok(<-done)
	}
}
