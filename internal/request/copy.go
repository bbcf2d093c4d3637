// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Stage copies the bytes that the NIC will read into staging buffers. It takes long.
func (r *Request) Stage() error {
	for i := range r.operands {
		n, err := r.operands[i].Sync()
		r.moved += n
		if err != nil {
			return err
		}
	}
	return nil
}

// packs reports whether a message must be packed first, because it has more pieces than a work
// request of the connection may have. It returns an error if it cannot be packed.
func (r *Request) packs(a *rc.Attr) (bool, error) {
	if r.Length > a.MaxMsg {
		return false, &failure.Error{
			Op: r.Kind.String(), Err: memory.ErrTooLong,
			Detail: fmt.Sprintf("%d bytes; a message of this connection has at most %d", r.Length, a.MaxMsg), Remedy: "write it, or send parts",
		}
	}
	n := r.pieces()
	if n <= a.SGE {
		return false, nil
	}
	if b := r.refusesPack(); b != nil {
		return false, &failure.Error{
			Op: r.Kind.String(), Device: b.String(), Err: unix.EOPNOTSUPP,
			Detail: fmt.Sprintf("%d pieces; a work request of this connection has at most %d, and the buffer is DirectOnly, so that the CPU packs none", n, a.SGE),
			Remedy: "allow more pieces (IOVLimit), send and receive parts, read or write instead, or register it with PreferDirect",
		}
	}
	return true, nil
}

// MustPack reports whether a message must be packed for a connection, and can be.
func (r *Request) MustPack(a *rc.Attr) bool { return r.pieces() > a.SGE && r.refusesPack() == nil }

// refusesPack returns a Buffer of the message whose bytes the CPU must not move, nil if there
// is none.
func (r *Request) refusesPack() *memory.Buffer {
	for i := range r.operands {
		if b := r.operands[i].DirectOnly(); b != nil {
			return b
		}
	}
	return nil
}

// pieces returns the number of pieces of local memory.
func (r *Request) pieces() int {
	p, n := lower.PiecesOf(r.local), 0
	for _, ok := p.Next(); ok; _, ok = p.Next() {
		n++
	}
	return n
}

// Pack gives a message its own memory, in one piece. It takes long.
func (r *Request) Pack() error {
	pack, err := r.home.NIC.AllocHost(r.Length)
	if err != nil {
		return err
	}
	if err := pack.Use(); err != nil {
		return err
	}
	_ = pack.Release() // now the use keeps it, until Free
	r.pack = pack
	if r.Kind == operation.Send {
		if err := r.gather(pack.HostBytes()); err != nil {
			return err
		}
		r.countStaged(r.Length)
	}
	r.local = append(r.local[:0], pack.Window(0, r.Length))
	return nil
}

// countStaged counts bytes that were copied between packed memory and its source.
func (r *Request) countStaged(n int64) {
	r.moved += n
	r.home.NIC.CountStaged(n)
}

// EndsSlowly reports whether Arrive must run before the program gets the completion: received
// bytes must be copied to other memory, or memory must be freed.
func (r *Request) EndsSlowly() bool {
	if r.pack != nil {
		return true
	}
	switch r.Kind {
	case operation.Write, operation.Send, operation.RemoteWrite:
		return false
	}
	for i := range r.operands {
		if r.operands[i].Staged() {
			return true
		}
	}
	return false
}

// Arrive copies received bytes to their place, and frees memory. It takes long.
func (r *Request) Arrive() error {
	n := r.Length
	if r.pack != nil {
		defer func() {
			r.pack.Unuse()
			r.pack = nil
		}()
		if r.Kind != operation.Recv {
			return nil
		}
		p := r.pack.HostBytes()[:n]
		r.countStaged(n)
		for i := range r.operands {
			x := &r.operands[i]
			k := min(x.Len, int64(len(p)))
			if err := x.Scatter(p[:k]); err != nil {
				return err
			}
			p = p[k:]
		}
		return nil
	}
	for i := range r.operands {
		x := &r.operands[i]
		k := min(x.Len, n)
		moved, err := x.Arrived(k)
		r.moved += moved
		if err != nil {
			return err
		}
		n -= k
	}
	return nil
}
