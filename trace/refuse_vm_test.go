// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// A refusal is explained by the kernel function that refused first.
func TestVMRefusals(t *testing.T) {
	tr := shared(t)
	d := openDevice(t)
	b := alloc(t, "drm:vgem", 1<<20)
	page := uint64(os.Getpagesize())
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	const closed = 1 << 18
	// A refusal by uverbs itself is explained by the call's arguments, which are read with the
	// module's types.
	byUverbs, hidden := StageUverbs, !testenv.HasTypes("ib_uverbs")
	if hidden {
		byUverbs = StageDriver
	}
	err = b.Segments()[0].Buf.Do(func(fd int) error {
		for _, row := range []struct {
			name  string
			p     uverbs.DMABufMR
			want  unix.Errno
			stage Stage
			words []string
		}{
			{"closed descriptor", uverbs.DMABufMR{FD: closed, Length: page}, unix.EBADF, StageGet, []string{"not open"}},
			{"not a dma-buf", uverbs.DMABufMR{FD: int32(null.Fd()), Length: page}, unix.EINVAL, StageGet, []string{"no dma-buf"}},
			{"beyond the end", uverbs.DMABufMR{FD: int32(fd), Length: 2 << 20}, unix.EINVAL, StageRange, []string{"0x200000", "0x100000"}},
			{"offset that overflows", uverbs.DMABufMR{FD: int32(fd), Offset: ^uint64(0) &^ (page - 1), IOVA: 0, Length: 2 * page}, unix.EINVAL, StageRange, []string{"beyond any buffer"}},
			{"IOVA elsewhere in the page", uverbs.DMABufMR{FD: int32(fd), IOVA: 8, Length: page}, unix.EINVAL, byUverbs, []string{"within a page"}},
			{"access flags", uverbs.DMABufMR{FD: int32(fd), Length: page, Access: 1 << 6}, unix.EINVAL, byUverbs, []string{"0x40"}},
			{"write without local write", uverbs.DMABufMR{FD: int32(fd), Length: page, Access: 2}, unix.EINVAL, byUverbs, []string{"local write"}},
		} {
			t.Run(row.name, func(t *testing.T) {
				p := row.p
				p.PD = d.pd
				if p.Access == 0 {
					p.Access = accessAll
				}
				mr, err := d.RegDMABufMR(p)
				if err == nil {
					d.DestroyMR(mr.Handle)
					t.Fatal("the kernel took it")
				}
				e := await(t, tr, "refused", func(e Event) bool { return e.Kind == Refused })
				r := e.Record
				f := r.Explain()
				t.Logf("%v\n%v", f, f.Chain)
				if r.Errno != err.(unix.Errno) || r.Errno != row.want {
					t.Errorf("errno %v, the call answered %v", r.Errno, err)
				}
				if f.Stage != row.stage {
					t.Errorf("stage %q, want %q", f.Stage, row.stage)
				}
				words := row.words
				if hidden && row.stage == byUverbs {
					words = []string{"or the checks before it"}
				}
				mustHave(t, f.String(), words...)
				if r.Placement.Memory != placement.NotMapped {
					t.Errorf("placement %v", r.Placement)
				}
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if live := tr.Records(); len(live) != 0 {
		t.Errorf("refused registrations live: %v", live)
	}
}

// Debian's rxe has no operation for dma-bufs.
func TestVMStockNoDriverOp(t *testing.T) {
	tr := shared(t)
	d := openDevice(t)
	b := alloc(t, "drm:vgem", 1<<20)
	if _, err := d.try(b, 0, 1<<20); err != unix.EOPNOTSUPP {
		t.Fatalf("stock rxe answers %v", err)
	}
	r := await(t, tr, "refused", func(e Event) bool { return e.Kind == Refused }).Record
	f := r.Explain()
	// Which device it is, and what its driver has, is among the arguments.
	stage, words := StageUverbs, []string{"no driver op", "rxe0", "reg_user_mr_dmabuf"}
	if !testenv.HasTypes("ib_uverbs") {
		stage, words = StageDriver, []string{"or the checks before it"}
	}
	if f.Stage != stage || f.Errno != unix.EOPNOTSUPP {
		t.Errorf("%+v", f)
	}
	mustHave(t, f.String(), words...)
}

// Exporters' operations that are too many to be watched are named.
//
//testbed:kernel 6.12
func TestVMExporterHooksAreBounded(t *testing.T) {
	c := mine()
	c.exporterOps = 1
	watched, left := 0, 0
	for _, h := range open(t, c).Hooks() {
		switch {
		case h.What != loader.WhatExporterOps:
		case h.Attached():
			watched++
		default:
			left++
			mustHave(t, h.Absent, "1 exporters' operations are watched at most")
		}
	}
	if watched != 1 || left == 0 {
		t.Errorf("%d are watched, %d named as not watched", watched, left)
	}
}
