// SPDX-License-Identifier: Apache-2.0

package ibvfd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
)

// The NIC and the allocator of the examples: the testbed's, where tests run
// them.
const (
	exampleNIC  = "rxe0"
	exampleSpec = "drm:vgem"
)

// A descriptor is registered for a peer's WRITEs, and the MR goes over to
// another one: ibv_reg_mr_fd and ibv_rereg_mr_fd of the proposal. The old buffer
// stays registered until the peer has the new keys and nothing under the old
// ones is in flight.
func ExampleMR_Rereg() {
	if err := moveOver(context.Background()); err != nil {
		log.Print(err)
	}
}

func moveOver(ctx context.Context) (err error) {
	memory, err := gpualloc.Open(exampleSpec, gpualloc.Env{})
	if err != nil {
		return err
	}
	defer alsoClosed(memory, &err)
	first, err := memory.Alloc(ctx, 1<<16, gpualloc.Options{})
	if err != nil {
		return err
	}
	defer alsoClosed(first, &err)
	second, err := memory.Alloc(ctx, 1<<16, gpualloc.Options{})
	if err != nil {
		return err
	}
	defer alsoClosed(second, &err)
	w, err := newWriter(exampleNIC)
	if err != nil {
		return err
	}
	defer alsoClosed(w, &err)

	// ibv_reg_mr_fd(pd, 0, 1<<16, DMABUF, fd, access)
	var mr *ibvfd.MR
	err = first.Segments()[0].Buf.Do(func(fd int) error {
		mr, err = w.pd.RegMR(ibvfd.MRAttr{
			Kind: ibvfd.DMABufFD, FDType: ibvfd.FDTypeDMABuf, FD: fd, Length: 1 << 16,
			Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteWrite, Owner: first,
		})
		return err
	})
	if err != nil {
		return err
	}
	defer alsoClosed(mr, &err)
	old := mr.State() // for the peer
	if err := w.write(ctx, "before", old); err != nil {
		return err
	}

	// ibv_rereg_mr_fd(mr, CHANGE_TRANSLATION, NULL, 4096, 8192, DMABUF, fd, 0)
	err = second.Segments()[0].Buf.Do(func(fd int) error {
		return mr.Rereg(ibvfd.ReregAttr{
			Change:  ibvfd.ReregMemory,
			MRAttr:  ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: fd, Offset: 4096, IOVA: 4096, Length: 8192, Owner: second},
			KeepOld: true,
		})
	})
	if err != nil {
		return err // the MR is as it was
	}
	err = errors.Join(w.write(ctx, "late", old), w.write(ctx, "after", mr.State()))
	if err != nil {
		return err
	}
	if err := mr.DropOld(); err != nil {
		return err
	}
	var refused *ibvfd.WCError
	if err := w.write(ctx, "never", old); !errors.As(err, &refused) || refused.Status != ibvfd.WCRemAccessErr {
		return fmt.Errorf("the old keys after DropOld: %w", err)
	}
	return errors.Join(holds(first, 0, "latere"), holds(second, 4096, "after"))
}

// holds checks what is in a buffer.
func holds(b *gpualloc.Buffer, off int64, want string) error {
	got := make([]byte, len(want))
	if _, err := b.ReadAt(got, off); err != nil {
		return err
	}
	if !bytes.Equal(got, []byte(want)) {
		return fmt.Errorf("%v holds %q, not %q", b, got, want)
	}
	return nil
}

// writer is a peer that writes: host memory, and a pair of queue pairs.
type writer struct {
	pd   *ibvfd.PD
	cq   *ibvfd.CQ
	qp   *ibvfd.QP
	mem  *hostmem.Buf
	mr   *ibvfd.MR
	open []io.Closer // closed from the end
}

func newWriter(nic string) (_ *writer, err error) {
	w := new(writer)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	c, err := ibvfd.Open(nic)
	if err != nil {
		return nil, err
	}
	w.open = append(w.open, c)
	if w.pd, err = c.AllocPD(); err != nil {
		return nil, err
	}
	w.open = append(w.open, w.pd)
	if w.mem, err = hostmem.Alloc(64); err != nil {
		return nil, err
	}
	w.open = append(w.open, w.mem)
	if w.mr, err = w.pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: w.mem.Bytes(), Length: 64, Owner: w.mem}); err != nil {
		return nil, err
	}
	w.open = append(w.open, w.mr)
	if w.cq, err = c.CreateCQ(2); err != nil {
		return nil, err
	}
	w.open = append(w.open, w.cq)
	a, b, err := ibvfd.LoopbackPair(w.pd, w.cq, ibvfd.QPAttr{Type: ibvfd.RC})
	if err != nil {
		return nil, err
	}
	w.qp, w.open = a, append(w.open, a, b)
	return w, nil
}

// write puts text at the beginning of the peer's memory.
func (w *writer) write(ctx context.Context, text string, to ibvfd.MRState) error {
	n := copy(w.mem.Bytes(), text)
	_, err := w.qp.PostSend([]ibvfd.SendWR{{
		Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled,
		SGE:        []ibvfd.SGE{{Addr: w.mr.IOVA(), Length: uint32(n), LKey: w.mr.LKey()}},
		RemoteAddr: to.IOVA, RKey: to.RKey,
	}})
	if err != nil {
		return err
	}
	var wc [1]ibvfd.WC
	if _, err := w.cq.PollUntil(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}

// Close closes all that the writer has.
func (w *writer) Close() (err error) {
	for i := len(w.open) - 1; i >= 0; i-- {
		err = errors.Join(err, w.open[i].Close())
	}
	return err
}

// alsoClosed is for defer.
func alsoClosed(c io.Closer, err *error) { *err = errors.Join(*err, c.Close()) }
