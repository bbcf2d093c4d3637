// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// One errno, four reasons: the exporter's attach, pin and map, and the driver. And
// with an errno of its own the driver, after the mapping: it is undone.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMSameErrno(t *testing.T) {
	testenv.VM(t)
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	tr := open(t, mine())
	d := openNIC(t, "rxe0")
	// Before the core's helper, what a driver does needs the types of ib_uverbs.
	early := "the driver of rxe0"
	if !testenv.HasTypes("ib_uverbs") {
		early = "the driver of the RDMA device, or the checks before it,"
	}
	attach := []string{"exporter softgpu refused to be attached", "softgpu_amdgpu_dma_buf_attach"}
	pin := []string{"exporter softgpu refused pin", "softgpu_ttm_dma_buf_pin"}
	mapping := []string{"exporter softgpu refused map", "softgpu_ttm_dma_buf_map"}
	if !testenv.HasTypes("softgpu") { // its operations are not known
		attach = []string{"dma_buf_dynamic_attach refused exporter softgpu", "its own operation was not watched"}
		pin = []string{"exporter softgpu refused pin", "dma_buf_pin passes its answer on"}
		mapping = []string{"dma_buf_map_attachment failed on exporter softgpu", "its own operation was not watched"}
	}
	explained := map[string]string{}
	for _, row := range []struct {
		name  string
		class string // the exporter's behaviour
		fail  string // its operation
		iova  uint64
		stage Stage
		words []string
	}{
		{"attach", "amdgpu", "attach", 0, StageAttach, attach},
		{"pin", "amdgpu", "pin", 0, StagePin, pin},
		{"map", "amdgpu", "map", 0, StageMap, mapping},
		{"no vmap", "nvidia", "", 0, StageDriver, []string{"the driver of rxe0 refused after the memory was mapped"}},
		{"driver", "amdgpu", "", ^uint64(0) &^ (truthSize - 1), StageDriver, []string{early}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := onGPU(t, gpu, row.class)
			if row.fail != "" {
				gpu.Set(t, "fail/"+row.fail, "22")
				defer gpu.Set(t, "fail/"+row.fail, "0")
			}
			all(t, tr)
			err := b.Segments()[0].Buf.Do(func(fd int) error {
				mr, err := d.RegDMABufMR(uverbs.DMABufMR{PD: d.pd, FD: int32(fd), Access: accessAll, Length: truthSize, IOVA: row.iova})
				if err == nil {
					d.DestroyMR(mr.Handle)
				}
				return err
			})
			want := unix.EINVAL
			if row.name == "no vmap" {
				want = unix.EOPNOTSUPP
			}
			if err != want {
				t.Fatalf("the registration answered %v, want %v", err, want)
			}
			events := all(t, tr)
			if len(events) != 1 || events[0].Kind != Refused {
				t.Fatalf("events %v", events)
			}
			f := events[0].Record.Explain()
			t.Logf("%v\n%q", f, f.Chain)
			if f.Errno != want || f.Stage != row.stage {
				t.Errorf("stage %q, want %q: %+v", f.Stage, row.stage, f)
			}
			mustHave(t, f.Detail, row.words...)
			if row.name == "no vmap" { // the mapping is undone after the refusal
				mustHave(t, strings.Join(f.Chain, ", "), "dma_buf_map_attachment", "ib_umem_dmabuf_unmap_pages", "dma_buf_unmap_attachment", "dma_buf_detach")
			}
			if other, dup := explained[f.Detail]; dup {
				t.Errorf("explained as for %s: %s", other, f.Detail)
			}
			explained[f.Detail] = row.name
		})
	}
}
