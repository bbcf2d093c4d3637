// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
)

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

	return opt.each(func(spec string, size int64) (row, error) {
		return compareRegistrationOf(ctx, opt, pd, spec, size)
	})
}

func compareRegistrationOf(ctx context.Context, opt options, pd *ibvfd.PD, spec string, size int64) (row, error) {
	alloc, err := openAllocator(spec, size)
	if err != nil {
		return row{}, err
	}
	defer alloc.Close()
	buf, err := alloc.Alloc(ctx, size, gpualloc.Options{Name: "bench"})
	if err != nil {
		return row{}, err
	}
	defer buf.Close()

	// Both sides register the very same dma-buf, so the pages are the same.
	dmabuf := buf.Segments()[0].Buf
	file, err := duplicate(buf)
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
	var refused *ibvfd.RegError
	if _, err := goSide(1); errors.As(err, &refused) && len(opt.exporters) == 0 {
		return row{}, fmt.Errorf("%w: %w", errSkip, err)
	} else if err != nil {
		return row{}, err
	}
	peers, err := startPeers("reg-loop", []*os.File{file}, opt.device, strconv.FormatInt(size, 10))
	if err != nil {
		return row{}, err
	}
	defer peers.close()
	return alternate(ctx, opt, row{Exporter: spec, Size: size}, goSide, peers[0].run, peers[1].run)
}

// duplicate is a descriptor of a buffer's first segment, for another process.
func duplicate(buf *gpualloc.Buffer) (file *os.File, err error) {
	err = buf.Segments()[0].Buf.Do(func(fd int) error {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			file = os.NewFile(uintptr(dup), "dma-buf")
		}
		return err
	})
	return file, err
}
