// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// Config is what a Table needs of its connection. None of the functions may call the Table, but
// for next.
type Config struct {
	// Send sends a message of the exchange. It calls next, if not nil, just before it sends, in
	// the order of the messages, with the number of the link; it does not send if next returns
	// false. If the link is lost, it waits for the next one, over which it sends the message; if there
	// is a next, it may return nil instead.
	Send    func(ctx context.Context, kind exchange.Kind, body []byte, next func(link uint32) bool) error
	Share   func(s memory.Span, access ibvfd.Access) (*memory.RemoteBuffer, error)
	Unshare func(rb *memory.RemoteBuffer) error
	Permits func(rb *memory.RemoteBuffer) error // refuses keys of another connection
	Drain   func(id uint64)                     // waits until no atomic of this side uses the keys for an ID, which are withdrawn
	Refusal func() error                        // why the connection takes no works any more, or nil
	Fail    func(why error)                     // ends the link, or the connection
	Go      func(f func())                      // calls f in a goroutine
	Life    context.Context                     // ends when the connection begins to end
	Ended   <-chan struct{}                     // closed when the connection has ended
	Timeout time.Duration                       // for a message that the peer does not take
}

// Table is the memory that the two sides of a connection have offered each other. Its methods may
// be called from several goroutines at once; its mutex is held for microseconds.
type Table struct {
	cfg Config

	mu    sync.Mutex
	link  uint32        // number of the connection's link
	loss  chan struct{} // closed when it is lost
	own   own
	peers peers
}

// New returns the Table of a connection that is being made.
func New(cfg Config) *Table {
	return &Table{cfg: cfg, loss: make(chan struct{}), peers: peers{arrived: make(chan struct{}, 1)}}
}

// Unlinked says that the link is lost: the peer offers its names again over the next one, but for
// those that it withdraws meanwhile.
func (t *Table) Unlinked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peers.forgetNames()
	select {
	case <-t.loss: // an attempt to make another link has failed
	default:
		close(t.loss)
	}
}

// End drops all offers of the peer. Later ones are dropped, too.
func (t *Table) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peers.drop()
}

// Wake makes the goroutines that wait for an offer without a name look again.
func (t *Table) Wake() { t.peers.tell() }
