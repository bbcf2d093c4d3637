// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// An exporter takes its memory away from an MR of each kind of NIC: the test compares
// the events in their order, and what is known of the bytes then. (rxe revokes by itself, as
// it must on a kernel whose ib_umem cannot. What ib_umem's own revocation makes of it, which
// irdma uses, is for TestJoinRevoked.)
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMRevoked(t *testing.T) {
	testenv.VM(t)
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	tr := open(t, mine())
	for _, row := range []struct {
		importer, behaviour, action string
		err                         error
		want                        []EventKind
		verdict                     placement.Memory // the MR's, after all of them
	}{
		{"dynamic", "amdgpu", "evict", nil, []EventKind{Moved, Unmapped}, placement.NotMapped},
		{"dynamic", "xe", "evict", nil, []EventKind{Moved, Unmapped}, placement.NotMapped},
		{"revocable", "amdgpu", "revoke", nil, []EventKind{Moved, Unmapped}, placement.NotMapped},
		{"revocable", "amdgpu", "evict", unix.EBUSY, nil, placement.PeerToPeer},
		{"pinned", "amdgpu", "evict", unix.EBUSY, nil, placement.PeerToPeer},
	} {
		t.Run(row.importer+"/"+row.behaviour+"/"+row.action, func(t *testing.T) {
			testenv.SetImporter(t, "rxe0", row.importer)
			b := onGPU(t, gpu, row.behaviour)
			d := openNIC(t, "rxe0")
			mr, err := d.try(b.Buffer, 0, truthSize)
			if err != nil {
				t.Fatal(err)
			}
			all(t, tr)
			if err := gpu.TrySet(row.action, fmt.Sprint(inode(b.Buffer))); !errors.Is(err, row.err) {
				t.Errorf("%s answered %v, want %v", row.action, err, row.err)
			}
			var got []EventKind
			for _, e := range all(t, tr) {
				got = append(got, e.Kind)
				if m := e.Record.Placement.Memory; e.Kind == Moved && m != placement.Stale {
					t.Errorf("moved, and %v", m)
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("%v, want %v", got, row.want)
			}
			r := only(t, tr, inode(b.Buffer))
			if r.Placement.Memory != row.verdict || (r.Moves > 0) != (row.err == nil) {
				t.Errorf("%v after %d moves, want %v", r.Placement, r.Moves, row.verdict)
			}
			if err := d.DestroyMR(mr.Handle); err != nil {
				t.Error(err)
			}
			e := await(t, tr, "the end", onBuffer(inode(b.Buffer), Released))
			if e.Record.Ended != "deregistered" || e.Record.Placement.Memory == placement.PeerToPeer && row.err == nil {
				t.Errorf("ended as %q: %v", e.Record.Ended, e.Record.Placement)
			}
		})
	}
}
