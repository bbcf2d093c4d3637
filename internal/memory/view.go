// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"slices"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
)

// View is a list of buffers with a layout, whose sources they are. It never changes, and does not
// keep the buffers: when one of them is closed, operations on the View return os.ErrClosed.
type View struct {
	bufs    []*Buffer
	missing *Buffer // one that the NIC does not reach; nil if there is none
	spaces  []lower.Space
	layout  layout.Layout
}

// NewView makes a view of buffers of one NIC. If the layout has bytes outside of them, it
// returns [failure.ErrRange].
func NewView(l layout.Layout, bufs ...*Buffer) (*View, error) {
	v := &View{bufs: slices.Clone(bufs), layout: l}
	for _, b := range bufs {
		if b == nil {
			return nil, noBuffer("make a view")
		}
		if b.core.nic != bufs[0].core.nic {
			return nil, errNotHere
		}
		if b.core.missing() {
			v.missing = b
		}
		v.spaces = append(v.spaces, b.space())
	}
	if len(bufs) == 0 {
		return nil, &failure.Error{Op: "make a view", Detail: "no buffers", Err: failure.ErrRange}
	}
	err := l.Check("make a view of local buffers", func(i int) (int64, bool) {
		if i >= len(bufs) {
			return 0, false
		}
		return bufs[i].size, true
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// All returns all bytes of the view.
func (v *View) All() Span { return Span{View: v, Length: v.layout.Size()} }
