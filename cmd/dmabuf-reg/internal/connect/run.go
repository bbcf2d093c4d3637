// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/trial"
	"github.com/gpurdma/gpurdma/internal/bytesize"
)

// tryAll carries out the plan, with --watch again and again.
func tryAll(ctx context.Context, a *app.App, f *params, c *peer.Client, r *Result) (err error) {
	plan := f.plan()
	r.Planned = len(plan)
	if f.both {
		if err := c.Within(ctx, "offer the buffer to "+f.addr, c.Offer); err != nil {
			r.interrupted = ctx.Err() != nil
			return app.Ended(ctx, err)
		}
	}
	t := &trial.Trial{Client: c, Seed: f.seed}
	if !f.watch {
		broken, err := tryOnce(ctx, a, f, t, plan, r)
		if broken {
			return err
		}
		return errors.Join(err, c.Bye(ctx))
	}
	defer startWatch(ctx, a, c)()
	for {
		last := r.Rows
		r.Rows = []trial.Row{}
		broken, err := tryOnce(ctx, a, f, t, plan, r)
		if r.interrupted && len(last) > 0 {
			r.Rows, r.interrupted = last, false
		}
		switch {
		case broken:
			return err
		case ctx.Err() != nil: // between two rows
			return app.Ended(ctx, err)
		case err != nil:
			return errors.Join(err, c.Bye(ctx))
		}
	}
}

// tryOnce carries out the rows of a plan. broken says that the connection is of no more use.
func tryOnce(ctx context.Context, a *app.App, f *params, t *trial.Trial, plan []trial.Planned, r *Result) (broken bool, err error) {
	for i, p := range plan {
		if !f.watch {
			a.Progress.Draw(fmt.Sprintf("%v %s of %s", p.Op, p.Direction, bytesize.Format(p.Size)), int64(i), int64(len(plan)))
		}
		row, broken, rerr := t.Row(ctx, p, f.count)
		if broken && ctx.Err() != nil { // that is no verdict on the operation
			r.interrupted = true
			return true, app.Ended(ctx, errors.Join(err, rerr))
		}
		r.Rows = append(r.Rows, row)
		err = errors.Join(err, rerr)
		if broken {
			return true, err
		}
	}
	return false, err
}
