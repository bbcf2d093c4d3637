// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Wrong arguments are errors of the call that gets them.
func TestWrongArguments(t *testing.T) {
	w := newWorld(t, Config{})
	_, remote := w.lend("memory", 64)
	mine := w.host(w.a, 64)
	other := newWorld(t, Config{})
	q := w.a.NewQueue(4)
	write := []Op{{Kind: OpWrite, Local: mine.All(), Remote: remote}}
	noted := write[0]
	noted.Note = []byte("note")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct{ err, want error }{
		"Post on nothing":              {second(q.Post(nil, write)), unix.EINVAL},
		"Post on another fabric's":     {second(q.Post(other.ca, write)), unix.EINVAL},
		"Alloc with an ended context":  {second(w.a.Alloc(ended, "host", 8)), context.Canceled},
		"Import with an ended context": {second(w.ca.Import(ended, "memory")), context.Canceled},
		"a note without Notify":        {second(w.ca.Start(limited(t), noted)), unix.EINVAL},
		"access that there is none of": {w.cb.Export("x", w.host(w.b, 8).All(), 99), unix.EINVAL},
		"a nil option":                 {w.ca.Write(limited(t), remote, mine.All(), nil), nil},
		"a size":                       {second(w.a.Dial(limited(t), "b:1", Config{MessageSize: 1 << 20})), unix.EINVAL},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
}
