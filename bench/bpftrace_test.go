// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/trace"
)

// The script has a probe for each hook that is in place, of a kind that
// bpftrace has.
func TestProbes(t *testing.T) {
	got := probesFor([]trace.Hook{
		{Function: "dma_buf_get", How: "fexit"},
		{Function: "dma_buf_dynamic_attach", How: "fexit"}, {Function: "dma_buf_dynamic_attach", How: "fentry"},
		{Function: "dma_buf_map_attachment", How: "fexit"},
		{Function: "dma_buf_detach", How: "fentry"},
		{Function: "ib_dereg_mr_user", Module: "ib_core", How: "fexit"}, {Function: "ib_dereg_mr_user", Module: "ib_core", How: "fentry"},
		{Function: "module_load", How: "tracepoint"},
		{Function: "dma_buf_move_notify", Absent: "not in this kernel"},
	}, true)
	want := `kretfunc:dma_buf_get /pid == $1/ { printf("%llu %d dma_buf_get %lld\n", nsecs, tid, (int64)retval); }
kretfunc:dma_buf_dynamic_attach /pid == $1/ { ` + attachLine + ` }
kfunc:dma_buf_dynamic_attach /pid == $1/ { }
kretfunc:dma_buf_map_attachment /pid == $1/ { ` + mapLine + ` }
kfunc:dma_buf_detach /pid == $1/ { printf("%llu %d dma_buf_detach\n", nsecs, tid); }
kretprobe:ib_dereg_mr_user /pid == $1/ { printf("%llu %d ib_dereg_mr_user %lld\n", nsecs, tid, (int64)retval); }
kprobe:ib_dereg_mr_user /pid == $1/ { }
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if strings.Contains(probesFor(nil, true), "{") {
		t.Error("probes for nothing")
	}
}
