// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// Rates are bytes per second, of one transfer at a time. Each is the best of a few
// transfers, because the first ones fill caches and wake links.
type Rates struct{ Write, Read float64 }

// CompareOptions tune Compare. The zero value is usable.
type CompareOptions struct {
	// Rounds is the number of times that each transfer is made; 0 means 4.
	Rounds int
	// Stall is the longest time of one transfer; 0 means 30 s.
	Stall time.Duration
	// Moved, if set, is called after each transfer to or from the buffer. The buffer
	// is still registered then, and the time of the call is not measured.
	Moved func()
}

// Compare measures the rates at which c moves bytes of buf, up to 1 MiB, and, by
// turns, as many bytes of host memory. Both rates include the cost of the NIC, its
// port and the loopback pair. The buffer's contents are lost.
//
// It makes and closes its own PD, CQ, loopback pairs and MRs on c. It returns ctx's
// error if ctx has ended, a [*TransferError], or the error of a registration. It does
// not compare bytes: [Verify] does.
func Compare(ctx context.Context, c *ibvfd.Context, buf *gpualloc.Buffer, opt CompareOptions) (buffer, host Rates, err error) {
	o := Options{Stall: opt.Stall}
	o.setDefaults()
	if segments := buf.Segments(); len(segments) > 0 {
		o.pageOffset = uint64(segments[0].Offset) % uint64(os.Getpagesize())
	}
	if opt.Rounds == 0 {
		opt.Rounds = 4
	}
	w, err := openRDMA(c, buf, o)
	if err != nil {
		return buffer, host, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	const access = ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite
	whole := span{0, min(buf.Size(), o.Chunk)}
	far, err := w.register(whole, o.pageOffset, access)
	if err != nil {
		return buffer, host, err
	}
	mem, err := newHostMR(w.pd, int(whole.len), access)
	if err != nil {
		return buffer, host, err
	}
	defer func() { err = errors.Join(err, w.settle(), mem.close()) }()
	near := &rdmaRegion{w: w, parts: []part{{span: whole, iova: mem.mr.IOVA(), lkey: mem.mr.LKey(), rkey: mem.mr.RKey()}}}
	for range opt.Rounds {
		for _, x := range []struct {
			o    op
			r    registered
			best *float64
		}{{opWrite, far, &buffer.Write}, {opWrite, near, &host.Write}, {opRead, far, &buffer.Read}, {opRead, near, &host.Read}} {
			took, err := w.move(ctx, x.o, x.r, 0, 0, int(whole.len))
			if err != nil {
				return buffer, host, err
			}
			*x.best = max(*x.best, rate{whole.len, took}.perSecond())
			if x.r == far && opt.Moved != nil {
				opt.Moved()
			}
		}
	}
	return buffer, host, nil
}
