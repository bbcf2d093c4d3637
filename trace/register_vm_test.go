// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"testing"

	"github.com/gpurdma/gpurdma/placement"
)

// A registration ends in one record that is right in every field, and lives
// until the deregistration.
func TestVMRegister(t *testing.T) {
	tr := shared(t)
	for _, h := range tr.Hooks() {
		if !h.Attached() {
			t.Logf("not watched: %s: %s", h.Function, h.Absent)
		}
	}
	eachExporter(t, func(t *testing.T, x exporter) {
		const size = 1 << 20
		d, b := openDevice(t), alloc(t, x.spec, size)
		mr := d.register(t, b)
		e := await(t, tr, "registered", onBuffer(inode(b), Registered))
		r := e.Record
		t.Logf("%v, %d entries, %d ranges", &r, r.Entries, r.Ranges)
		if r.Call != RegDMABufMR || r.Errno != 0 || r.RDMADevice != "rxe0" || r.Length != size {
			t.Errorf("record %+v", r)
		}
		if r.Buffer.Exporter != x.exp || r.Buffer.Driver != x.driver || r.Buffer.Size != size {
			t.Errorf("buffer %+v", r.Buffer)
		}
		if r.MR == nil || r.MR.LKey != mr.LKey || r.MR.RKey != mr.RKey || r.MR.Length != size {
			t.Errorf("MR %+v, registered %+v", r.MR, mr)
		}
		// rxe pins, and reads and writes by the CPU.
		if !r.Pinned || !r.CPUMapped {
			t.Errorf("pinned: %v, mapped for the CPU: %v", r.Pinned, r.CPUMapped)
		}
		p := r.Placement
		if p.Memory != placement.SystemMemory || p.Direct() != placement.No {
			t.Errorf("placement %v", p)
		}
		var bytes uint64
		for _, q := range p.Places {
			bytes += q.Bytes
		}
		if bytes != size {
			t.Errorf("%d bytes placed, %d registered", bytes, size)
		}
		got, err := tr.Prove(within(t), placement.Key{LKey: mr.LKey, Device: "rxe0"})
		if err != nil || got.Memory != placement.SystemMemory {
			t.Errorf("Prove: %v, %v", got, err)
		}
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Fatal(err)
		}
		e = await(t, tr, "released", onBuffer(inode(b), Released))
		if e.Record.ID != r.ID || e.Record.Ended != "deregistered" || e.Record.Pinned {
			t.Errorf("end %+v", e.Record)
		}
		if live := tr.Records(); len(live) != 0 {
			t.Errorf("still live: %v", live)
		}
		if l := tr.Loss(); l.Any() || l.Orphaned != 0 {
			t.Errorf("%v, %d orphaned", l, l.Orphaned)
		}
	})
}
