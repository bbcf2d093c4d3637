// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

type ret struct {
	fn  uint8
	err unix.Errno
	arg uint16
}

// refused is a registration that failed after these functions returned.
func refused(errno unix.Errno, change func(*abi.Record), rets ...ret) *abi.Record {
	var c clock
	w := made(&c, 1, func(w *abi.Record) {
		w.Ret = -int32(errno)
		w.Have &^= abi.HaveMR | abi.HaveMap
		for i, r := range append(rets, ret{abi.FuncHandler, errno, 0}) {
			w.Steps[i] = abi.Step{Func: r.fn, Ret: -int32(r.err), Arg: r.arg, Time: c.tick()}
			w.NSteps++
		}
	})
	if change != nil {
		change(w)
	}
	return w
}

func nothing(w *abi.Record) { w.Have &^= abi.HaveBuf | abi.HaveAttach; w.Dev = abi.Device{} }

func TestExplain(t *testing.T) {
	busy := unix.EBUSY
	for _, row := range []struct {
		name  string
		rec   *abi.Record
		stage Stage
		words []string
	}{
		// One errno, refused in four places: four explanations.
		{"attach", refused(busy, nil, ret{abi.FuncGet, 0, 0}, ret{abi.FuncExporterAttach, busy, 0}, ret{abi.FuncAttach, busy, 0}, ret{abi.FuncUmemGet, busy, 0}),
			StageAttach, []string{"exporter amdgpu refused to be attached", "0000:05:00.0", "EBUSY"}},
		{"pin", refused(busy, nil, ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncUmemGet, 0, 0}, ret{abi.FuncExporterPin, busy, 1}, ret{abi.FuncPin, busy, 0}, ret{abi.FuncUnmap, 0, 0}, ret{abi.FuncDetach, 0, 0}),
			StagePin, []string{"exporter amdgpu refused pin (amdgpu_dma_buf_pin): EBUSY"}},
		{"map", refused(busy, nil, ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncPin, 0, 0}, ret{abi.FuncExporterMap, busy, 2}, ret{abi.FuncMap, busy, 0}, ret{abi.FuncUmemMap, busy, 0}, ret{abi.FuncDetach, 0, 0}),
			StageMap, []string{"exporter amdgpu refused map", "xe_dma_buf_map", "EBUSY"}},
		{"driver", refused(busy, nil, ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncPin, 0, 0}, ret{abi.FuncMap, 0, 0}, ret{abi.FuncUmemMap, 0, 0}, ret{abi.FuncDetach, 0, 0}),
			StageDriver, []string{"the driver of mlx5_0 refused after the memory was mapped", "EBUSY"}},

		{"pin inside map (no CONFIG_DMABUF_MOVE_NOTIFY)", refused(busy, nil, ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncExporterPin, busy, 1}, ret{abi.FuncMap, busy, 0}),
			StagePin, []string{"amdgpu_dma_buf_pin"}},
		{"no driver op", refused(unix.EOPNOTSUPP, func(w *abi.Record) { nothing(w); w.Have = w.Have&^abi.HaveDriverOp | abi.HaveNoDriverOp }),
			StageUverbs, []string{"no driver op", "mlx5_0", "reg_user_mr_dmabuf", "EOPNOTSUPP"}},
		{"driver op not known", refused(unix.EOPNOTSUPP, func(w *abi.Record) { nothing(w); w.Have &^= abi.HaveDriverOp }),
			StageDriver, []string{"could not be read"}},
		{"closed descriptor", refused(unix.EBADF, nothing, ret{abi.FuncGet, unix.EBADF, 0}, ret{abi.FuncUmemGet, unix.EBADF, 0}),
			StageGet, []string{"descriptor 7 is not open in process 100"}},
		{"a probe", refused(unix.EBADF, func(w *abi.Record) { nothing(w); w.FD = -1 }, ret{abi.FuncGet, unix.EBADF, 0}, ret{abi.FuncUmemGet, unix.EBADF, 0}),
			StageGet, []string{"the program asked only whether", "EBADF"}},
		{"not a dma-buf", refused(unix.EINVAL, nothing, ret{abi.FuncGet, unix.EINVAL, 0}, ret{abi.FuncUmemGet, unix.EINVAL, 0}),
			StageGet, []string{"descriptor 7 is no dma-buf"}},
		{"range", refused(unix.EINVAL, func(w *abi.Record) { w.Offset, w.Have = 0x8000, w.Have&^abi.HaveAttach }, ret{abi.FuncGet, 0, 0}, ret{abi.FuncUmemGet, unix.EINVAL, 0}),
			StageRange, []string{"offset 0x8000 + length 0x10000", "0x10000 bytes"}},
		{"range, driver with helpers of its own", refused(unix.EINVAL, func(w *abi.Record) { w.Offset, w.Have = 0x8000, w.Have&^abi.HaveAttach }, ret{abi.FuncGet, 0, 0}),
			StageRange, []string{"offset 0x8000 + length 0x10000", "0x10000 bytes"}},
		{"range that wraps", refused(unix.EINVAL, func(w *abi.Record) { nothing(w); w.Offset, w.IOVA = ^uint64(0xfff), 0 }),
			StageRange, []string{"beyond any buffer"}},
		{"length 0", refused(unix.EINVAL, func(w *abi.Record) { nothing(w); w.Length = 0 }), StageRange, []string{"the length is 0"}},
		{"place within the page", refused(unix.EINVAL, func(w *abi.Record) { nothing(w); w.IOVA = 0x10 }),
			StageUverbs, []string{"offset 0x0 and IOVA 0x10"}},
		{"access flags", refused(unix.EINVAL, func(w *abi.Record) { nothing(w); w.Access = 0x41 }),
			StageUverbs, []string{"0x40 are not allowed"}},
		{"no vmap", refused(unix.EINVAL, nil, ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncMap, 0, 0}, ret{abi.FuncVmap, unix.EINVAL, 0}),
			StageVmap, []string{"no mapping for the CPU"}},
		{"peer-to-peer refused by type (vfio)", refused(unix.EINVAL, func(w *abi.Record) { set(w.Provider[:], "0000:03:00.0") },
			ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncP2PType, 0, uint16(placement.MapTypeNotSupported)}, ret{abi.FuncPhysVec, unix.EINVAL, 0}, ret{abi.FuncMap, unix.EINVAL, 0}),
			StageMap, []string{"importer 0000:05:00.0 cannot reach 0000:03:00.0"}},
		{"peer-to-peer refused by distance", refused(unix.EOPNOTSUPP, func(w *abi.Record) { w.Distance = -1 },
			ret{abi.FuncGet, 0, 0}, ret{abi.FuncP2PDistance, 1, 0}, ret{abi.FuncExporterAttach, unix.EOPNOTSUPP, 0}, ret{abi.FuncAttach, unix.EOPNOTSUPP, 0}),
			StageAttach, []string{"distance -1"}},
		{"a failure that was got over does not count", refused(unix.ENOMEM, nil,
			ret{abi.FuncGet, 0, 0}, ret{abi.FuncExporterMap, unix.EAGAIN, 0}, ret{abi.FuncMap, 0, 0}),
			StageDriver, []string{"after the memory was mapped", "ENOMEM"}},
		{"the exporter's operation is not watched", refused(busy, nil, ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, busy, 0}),
			StageAttach, []string{"not watched"}},
		{"nothing seen", func() *abi.Record { w := refused(busy, nothing); w.NSteps = 0; return w }(), StageUverbs, []string{"no function"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := testJoiner(10)
			j.handle(row.rec)
			r := j.take()[0].Record
			f := r.Explain()
			if f.Stage != row.stage {
				t.Errorf("stage %q, want %q: %v", f.Stage, row.stage, f)
			}
			mustHave(t, f.String(), row.words...)
			if f.Errno != r.Errno {
				t.Errorf("errno %v, the call answered %v", f.Errno, r.Errno)
			}
		})
	}
	var c clock
	j := testJoiner(10)
	j.handle(made(&c, 1))
	r := j.take()[0].Record
	if f := r.Explain(); f.Errno != 0 || f.String() != "it did not fail" {
		t.Errorf("a success explained: %+v", f)
	}
}
