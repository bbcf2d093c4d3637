// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// row is the comparison of one exporter at one size.
type row struct {
	Exporter string        `json:"exporter"`
	Size     int64         `json:"size_bytes"`
	GoP50    time.Duration `json:"go_p50_ns"`
	GoP99    time.Duration `json:"go_p99_ns"`
	CP50     time.Duration `json:"c_p50_ns"`
	CP99     time.Duration `json:"c_p99_ns"`
	GoOverC  ratio         `json:"go_over_c_p50"`
	COverC   ratio         `json:"c_over_c_p50"`
}

const access = ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite

// compareRegistration measures every exporter at every size. It returns the
// rows it got even when a later one fails.
func compareRegistration(ctx context.Context, opt options) ([]row, error) {
	c, err := ibvfd.Open(opt.device)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	pd, err := c.AllocPD()
	if err != nil {
		return nil, err
	}
	defer pd.Close()

	specs := opt.exporters
	if len(specs) == 0 {
		for _, d := range gpualloc.Discover(gpualloc.Env{}) {
			if d.Available {
				specs = append(specs, d.Spec)
			}
		}
	}
	var rows []row
	for _, spec := range specs {
		for _, size := range opt.sizes {
			r, err := compareOne(ctx, opt, pd, spec, size)
			if errors.Is(err, errSkip) {
				fmt.Fprintf(os.Stderr, "bench: %s, %d bytes left out: %v\n", spec, size, err)
				continue
			}
			if err != nil {
				return rows, fmt.Errorf("%s, %d bytes: %w", spec, size, err)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// errSkip marks a combination that the exporter does not offer.
var errSkip = errors.New("not offered")

func compareOne(ctx context.Context, opt options, pd *ibvfd.PD, spec string, size int64) (row, error) {
	alloc, err := gpualloc.Open(spec, gpualloc.Env{})
	if err != nil {
		return row{}, err
	}
	defer alloc.Close()
	if most := alloc.Describe().MaxSize; most > 0 && size > most {
		return row{}, fmt.Errorf("%w: the exporter's limit is %d bytes", errSkip, most)
	}
	buf, err := alloc.Alloc(ctx, size, gpualloc.Options{Name: "bench"})
	if err != nil {
		return row{}, err
	}
	defer buf.Close()

	// Both sides register the very same dma-buf, so the pages are the same.
	dmabuf := buf.Segments()[0].Buf
	var file *os.File
	err = dmabuf.Do(func(fd int) error {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(dup), "dma-buf")
		return nil
	})
	if err != nil {
		return row{}, err
	}
	defer file.Close()

	goSide := func(n int) ([]time.Duration, error) {
		ns := make([]time.Duration, n)
		for i := range ns {
			start := clock()
			mr, err := pd.RegMR(ibvfd.MRAttr{
				Kind: ibvfd.DMABufFD, Buf: dmabuf, Length: uint64(size), Access: access,
				Policy: ibvfd.RouteIoctlOnly,
			})
			if err != nil {
				return nil, err
			}
			if err := mr.Close(); err != nil {
				return nil, err
			}
			ns[i] = clock() - start
		}
		return ns, nil
	}
	var peers [2]*peer
	for i := range peers {
		if peers[i], err = startPeer(opt.peer, opt.device, size, file); err != nil {
			return row{}, err
		}
		defer peers[i].close()
	}
	return alternate(ctx, opt, row{Exporter: spec, Size: size}, goSide, peers[0].run, peers[1].run)
}

// clock reads the monotonic clock and no other, as the C program does.
func clock() time.Duration { return time.Since(clockStart) }

var clockStart = time.Now()

// side registers and deregisters n times and returns each round's duration.
type side func(n int) ([]time.Duration, error)

// alternate runs the three sides in turns. Who goes first rotates, so that a
// drift of the machine does not favour one.
func alternate(ctx context.Context, opt options, r row, sides ...side) (row, error) {
	n, err := slicePasses(opt.slice, sides[1])
	if err != nil {
		return r, err
	}
	collected := make([]samples, len(sides))
	var goOverC, cOverC []float64
	for round := range opt.rounds {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		medians := make([]time.Duration, len(sides))
		for i := range sides {
			k := (i + round) % len(sides)
			ns, err := sides[k](n)
			if err != nil {
				return r, err
			}
			medians[k] = collected[k].add(ns)
		}
		goOverC = append(goOverC, float64(medians[0])/float64(medians[1]))
		cOverC = append(cOverC, float64(medians[2])/float64(medians[1]))
	}
	r.GoP50, r.GoP99 = collected[0].quantiles()
	r.CP50, r.CP99 = collected[1].quantiles()
	r.GoOverC, r.COverC = newRatio(goOverC), newRatio(cOverC)
	return r, nil
}

// slicePasses finds how many passes of s fill a turn, after a warm-up.
func slicePasses(turn time.Duration, s side) (int, error) {
	const warmup = 20
	ns, err := s(warmup)
	if err != nil {
		return 0, err
	}
	var w samples
	each := max(w.add(ns), time.Microsecond)
	return int(min(max(turn/each, 1), 20000)), nil
}
