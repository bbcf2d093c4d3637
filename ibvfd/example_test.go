// SPDX-License-Identifier: Apache-2.0

package ibvfd_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
)

// A dma-buf is registered and written by RDMA WRITE over a loopback pair.
func Example() {
	buf, err := anyDMABuf()
	if err != nil {
		fmt.Println("no dma-buf:", err)
		return
	}
	defer buf.Close()
	if err := writeTo(context.Background(), "rxe0", buf); err != nil {
		fmt.Fprintln(os.Stderr, err) // *ibvfd.RegError says which stage refused
	}
}

func writeTo(ctx context.Context, nic string, buf *dmabuf.Buf) (err error) {
	c, err := ibvfd.Open(nic)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()

	size := uint64(buf.Size())
	mr, err := pd.RegMR(ibvfd.MRAttr{
		Kind: ibvfd.DMABufFD, Buf: buf, Length: size,
		Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteWrite,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()

	host, err := hostmem.Alloc(int(size))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	src, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: host.Bytes(), Length: size, Owner: host})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()

	cq, err := c.CreateCQ(2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	a, b, err := ibvfd.LoopbackPair(pd, cq, ibvfd.QPAttr{Type: ibvfd.RC})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close(), b.Close()) }()

	copy(host.Bytes(), "hello")
	_, err = a.PostSend([]ibvfd.SendWR{{
		Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled,
		SGE:        []ibvfd.SGE{{Addr: src.IOVA(), Length: uint32(size), LKey: src.LKey()}},
		RemoteAddr: mr.IOVA(), RKey: mr.RKey(),
	}})
	if err != nil {
		return err
	}
	var wc [1]ibvfd.WC
	if _, err := cq.PollUntil(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}

// anyDMABuf makes one from ordinary memory.
func anyDMABuf() (*dmabuf.Buf, error) {
	mem, err := dmabuf.NewMemfd("example", int64(os.Getpagesize()))
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	var buf *dmabuf.Buf
	err = mem.Do(func(fd int) (err error) {
		buf, err = dmabuf.CreateUDMABuf([]dmabuf.Range{{FD: fd, Size: mem.Size()}})
		return err
	})
	return buf, err
}

// One errno, several causes: the error says which.
func ExampleRegError() {
	err := error(&ibvfd.RegError{
		Device: "rxe0", Route: ibvfd.RouteIoctl, Attr: ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: 7, Length: 1 << 16},
		Errno: 95, Earliest: fault.StageUverbs, Latest: fault.StageUverbs, Cause: fault.CauseNoDriverOp,
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, errors.ErrUnsupported))
	// Output:
	// register 0x10000 bytes at offset 0x0 of fd 7 on rxe0 by REG_DMABUF_MR ioctl: refused at uverbs: no driver op: EOPNOTSUPP (95: operation not supported)
	// true
}
