// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

// story is what happens to two registrations and one that is refused.
func story() []trace.Event {
	inBAR := placement.Placement{
		Memory: placement.PeerToPeer, Proof: placement.PhysicalAddress,
		Places: []placement.Place{{Kind: placement.KindBAR, Device: "0000:03:00.0", BAR: 1, GPU: true, Bytes: 1 << 20, Low: 0x3800000000, High: 0x3800100000}},
		Route:  placement.BelowSwitch, RouteReason: "the kernel chose PCI bus addresses",
	}
	inRAM := placement.Placement{Memory: placement.SystemMemory, Proof: placement.StructPage}
	good := trace.Record{
		ID: 1, Call: trace.RegDMABufMR, PID: 42, Comm: "trainer", Start: began, Duration: 250 * time.Microsecond,
		RDMADevice: "mlx5_0", FD: 7, Length: 1 << 20, ArgsKnown: true,
		Buffer:    &trace.Buffer{Inode: 5, Size: 1 << 20, Exporter: "drm", Driver: "amdgpu", Movable: true},
		Importer:  &trace.Importer{Device: "0000:05:00.0", Bus: "pci", PCI: "0000:05:00.0", IsPCI: true, Mode: trace.ModeDynamic, PeerAllowed: placement.Yes, IOMMU: "none"},
		MR:        &trace.MR{Number: 3, LKey: 0x1234, RKey: 0x1234, Length: 1 << 20},
		Placement: inBAR,
		Steps: []trace.Step{
			{Function: "dma_buf_get", At: 10 * time.Microsecond}, {Function: "dma_buf_dynamic_attach", At: 40 * time.Microsecond},
			{Function: "pci_p2pdma_map_type", At: 60 * time.Microsecond, Note: "bus address"},
			{Function: "dma_buf_map_attachment", At: 120 * time.Microsecond}, {Function: "REG_DMABUF_MR", At: 250 * time.Microsecond},
		},
	}
	demoted := good
	demoted.ID, demoted.Placement, demoted.DemotedBy = 2, inRAM, "0000:06:00.0"
	demoted.MR = &trace.MR{Number: 4, LKey: 0x1334, RKey: 0x1334, Length: 1 << 20}
	bad := good
	bad.ID, bad.MR, bad.Errno = 3, nil, unix.EBUSY
	bad.Placement = placement.Placement{Memory: placement.NotMapped, Errno: int(unix.EBUSY), Reason: "the kernel refused the mapping"}
	bad.Steps = []trace.Step{
		{Function: "dma_buf_get", At: 10 * time.Microsecond}, {Function: "dma_buf_dynamic_attach", At: 40 * time.Microsecond},
		{Function: "REG_DMABUF_MR", Err: unix.EBUSY, At: 90 * time.Microsecond},
	}
	moved := good
	moved.Placement, moved.Moves = placement.Placement{Memory: placement.Stale, Reason: "the exporter moved or invalidated the buffer after this mapping"}, 1
	over := moved
	over.Ended, over.EndedAt = "deregistered", began.Add(time.Second)
	return []trace.Event{
		{Time: began, Kind: trace.Registered, Record: good},
		{Time: began, Kind: trace.Registered, Record: demoted},
		{Time: began, Kind: trace.Refused, Record: bad},
		{Time: began.Add(time.Second / 2), Kind: trace.Moved, Record: moved},
		{Time: began.Add(time.Second), Kind: trace.Released, Record: over},
	}
}

// What people see of the same events, in lines and in words.
func TestTraceText(t *testing.T) {
	var stats trace.Stats
	var inLines, inWords strings.Builder
	l, w := newLines(&inLines), newWords(&inWords)
	for _, e := range story() {
		stats.Add(e)
		for _, p := range []printer{l, w} {
			if err := p.event(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := Result{Summary: stats.Summary([]trace.Record{story()[1].Record}, trace.Loss{Missed: map[string]uint64{"mappings": 2}})}
	if err := r.Text(&inLines); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "trace", inLines.String())
	golden.Compare(t, "explain", inWords.String())
	var nothing strings.Builder
	if err := (&Result{}).Text(&nothing); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "trace-nothing", nothing.String())
}

// The numbers that explain gives end with their records, however those end.
func TestExplainNumbers(t *testing.T) {
	var out strings.Builder
	w := &words{w: &out, numbers: map[uint64]int{}}
	registered := story()[0]
	for id := range uint64(100) {
		e := registered
		e.Record.ID = id
		for _, kind := range []trace.EventKind{trace.Registered, trace.Mapped, []trace.EventKind{trace.Released, trace.GivenUp}[id%2]} {
			e.Kind = kind
			if err := w.event(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(w.numbers) != 0 || w.last != 100 {
		t.Errorf("%d numbers are kept, the last is %d", len(w.numbers), w.last)
	}
	if want := "registration 100 given up: too many live"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not said", want)
	}
}

func TestTraceFilters(t *testing.T) {
	r := story()[0].Record
	for name, tt := range map[string]struct {
		f    params
		want bool
	}{
		"none":            {params{}, true},
		"exporter's name": {params{exporters: []string{"nvidia", "drm"}}, true},
		"its driver":      {params{exporters: []string{"amdgpu"}}, true},
		"another":         {params{exporters: []string{"nvidia"}}, false},
		"RDMA device":     {params{importers: []string{"mlx5_0"}}, true},
		"PCI function":    {params{importers: []string{"0000:05:00.0"}}, true},
		"both":            {params{importers: []string{"mlx5_0"}, exporters: []string{"xe"}}, false},
		"an empty name":   {params{importers: []string{""}}, false},
	} {
		if got := tt.f.wants(&r); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, spec := range []string{"heap:system", "drm:amdgpu", "drm:0000:03:00.0"} {
		f := params{exporters: []string{"nvidia", spec}}
		_, err := f.config()
		if want := "--exporter " + spec; err == nil || cli.Status(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, which no exporter is called: %v", spec, err)
		}
	}
	f := params{exporters: []string{"drm"}}
	if f.wants(&trace.Record{}) {
		t.Error("a record without a buffer passes a filter by exporter")
	}
}

// A summary that could not be written makes the command fail.
func TestSummaryThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := (&Result{}).Text(full); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("into /dev/full: %v", err)
	}
}
