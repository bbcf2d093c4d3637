// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

func TestStats(t *testing.T) {
	var s Stats
	good := func(id uint64, d time.Duration, m placement.Memory) Record {
		return Record{ID: id, Call: RegDMABufMR, Duration: d, Start: time.Unix(int64(id), 0),
			Placement: placement.Placement{Memory: m},
			Steps: []Step{
				{Function: "dma_buf_get", At: d / 10}, {Function: "dma_buf_dynamic_attach", At: d / 2}, {Function: "REG_DMABUF_MR", At: d},
			}}
	}
	for id := range uint64(98) {
		s.Add(Event{Kind: Registered, Record: good(id+1, 1000, placement.SystemMemory)})
	}
	s.Add(Event{Kind: Registered, Record: good(99, 8000, placement.PeerToPeer)})
	s.Add(Event{Kind: Registered, Record: good(100, 16000, placement.PeerToPeer)})
	bad := Record{Call: RegDMABufMR, Errno: unix.EBUSY, Steps: []Step{
		{Function: "softgpu_pin", Err: unix.EBUSY, stage: abi.FuncExporterPin}, {Function: "REG_DMABUF_MR", Err: unix.EBUSY, stage: abi.FuncHandler},
	}}
	s.Add(Event{Kind: Refused, Record: bad})
	gone := good(1, 1000, placement.SystemMemory)
	gone.Ended = endedByExit
	s.Add(Event{Kind: Released, Record: gone})
	orderly := good(2, 1000, placement.SystemMemory)
	orderly.Ended = "deregistered"
	s.Add(Event{Kind: Released, Record: orderly})

	live := []Record{good(50, 1000, placement.SystemMemory), {Call: Attachment}}
	got := s.Summary(live, Loss{Missed: map[string]uint64{"mappings": 3}})
	if got.Events[Registered] != 100 || got.Events[Refused] != 1 || got.Events[Released] != 2 {
		t.Errorf("events %v", got.Events)
	}
	if got.Memory["system memory"] != 98 || got.Memory["peer-to-peer"] != 2 || got.Refusals["pin: EBUSY"] != 1 {
		t.Errorf("memory %v, refusals %v", got.Memory, got.Refusals)
	}
	if len(got.Latency) != 4 {
		t.Fatalf("latency %v", got.Latency)
	}
	whole, attach := got.Latency[0], got.Latency[2]
	if whole.Function != "" || whole.Count != 100 || whole.Max != 16000 || whole.P50 < 1000 || whole.P50 > 1000*33/32 || whole.P99 < 8000 || whole.P99 > 8000*33/32 {
		t.Errorf("whole call %+v", whole)
	}
	if attach.Function != "dma_buf_dynamic_attach" || attach.Max != 6400 {
		t.Errorf("attach %+v", attach)
	}
	if got.NUnreleased != 2 || len(got.Unreleased) != 2 || got.Unreleased[0].Lives || !got.Unreleased[1].Lives || got.Loss.Missed["mappings"] != 3 {
		t.Errorf("unreleased %+v", got.Unreleased)
	}
	if empty := new(Stats).Summary(nil, Loss{}); empty.Latency == nil || empty.Events == nil {
		t.Error("an empty summary has null in it")
	}
}

// Runs that the kernel skipped are counted under the events that were not seen.
func TestMissedWords(t *testing.T) {
	before := map[string]uint64{"mappings": 2, "registrations": 1}
	after := map[string]uint64{"mappings": 5, "registrations": 1, "deregistrations": 4}
	if got, want := missedWords(before, after), "4 runs of the program for deregistrations, 3 runs of the program for mappings"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := missedWords(after, after) + missedWords(after, nil); got != "" {
		t.Errorf("nothing new: %q", got)
	}
	l := Loss{Missed: after}
	if !l.Any() || !strings.Contains(l.String(), "5 skipped runs of the program for mappings") {
		t.Error(l)
	}
}

// A program reads from the JSON why a call failed, without knowing the stages' numbers.
func TestEventJSON(t *testing.T) {
	bad := Record{Call: RegDMABufMR, Errno: unix.EBUSY, Steps: []Step{{Function: "softgpu_pin", Err: unix.EBUSY, stage: abi.FuncExporterPin}}}
	text, err := json.Marshal(Event{Kind: Refused, Record: bad})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"event":"refused"`, `"record":{`, `"failure":{"stage":"pin"`, `"errno":16`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	text, err = json.Marshal(Event{Kind: Registered})
	if err != nil || strings.Contains(string(text), "failure") {
		t.Errorf("%s, %v", text, err)
	}
}
