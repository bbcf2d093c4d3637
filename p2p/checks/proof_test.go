// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// climb makes a proof that passed every rung up to one.
func climb(outcome chain.Outcome, last p2p.Rung) *p2p.Proof {
	p := p2p.NewProof()
	p.Outcome, p.Why = outcome, "a test says so"
	p.WriteRate, p.ReadRate, p.HostWriteRate, p.HostReadRate = 1e9, 1e9, 1e9, 1e9
	p.Watch.Counted = true
	for r := range last + 1 {
		p.Steps[r] = p2p.Step{Result: p2p.ResultPass, Detail: "done"}
	}
	return p
}

// at changes a rung.
func at(p *p2p.Proof, r p2p.Rung, result p2p.Result) *p2p.Proof {
	p.Steps[r] = p2p.Step{Result: result, Detail: "as the test says"}
	return p
}

func refused(p *p2p.Proof, e unix.Errno) *p2p.Proof {
	p.Outcome, p.Errno = chain.Refused, e
	return at(p, p2p.RungRegister, p2p.ResultFail)
}

// counted is what a driver says of a buffer of 256 bytes that it counts.
func counted(p *p2p.Proof, before, after int64) *p2p.Proof {
	p.Resident = &p2p.Resident{Size: 256, Without: before - 256, Before: before, After: after}
	return p
}

// grew is how many of these bytes came with the buffer.
func grew(p *p2p.Proof, n int64) *p2p.Proof {
	p.Resident.Without = p.Resident.Before - n
	return p
}

func uncounted(p *p2p.Proof) *p2p.Proof {
	p.Resident = &p2p.Resident{Size: 256, Err: errors.New("the driver has no fdinfo")}
	return p
}

func saw(p *p2p.Proof, lines ...string) *p2p.Proof {
	p.Watch.Lines = lines
	return p
}

// The results of the checks for each outcome of a proof's steps. On this machine all pairs are
// predicted to be direct.
func TestProofChecks(t *testing.T) {
	whole := func() *p2p.Proof { return climb(chain.Direct, p2p.RungRelease) }
	untraced := func() *p2p.Proof { return at(whole(), p2p.RungPlace, unknown) }
	const fault = "DMAR: [DMA Write NO_PASID] Request device [14:00.0] fault addr 0xfb020000"
	slow, unread, growing, corrected := whole(), whole(), whole(), whole()
	slow.ReadRate = 1e7
	uncompared, slowWrite, slowBoth, magic := whole(), whole(), whole(), whole()
	uncompared.HostWriteRate, uncompared.Uncompared = 0, "a test says so"
	slowWrite.HostWriteRate = 2.1e9
	slowBoth.HostReadRate, slowBoth.HostWriteRate = 2.1e9, 2.1e9
	magic.WriteRate, magic.ReadRate, magic.HostWriteRate, magic.HostReadRate = 64e9, 64e9, 64e9, 64e9 // over 16 lanes of 32 GT/s
	unread.Watch.LogErr = unix.EPERM
	notCounted := whole()
	notCounted.Watch.Counted = false
	growing.Watch.Errors, growing.Watch.Fatal = []string{"0000:13:00.0: 1 fatal"}, true
	corrected.Watch.Errors = []string{"0000:13:00.0: 1 correctable"}
	losing := whole()
	losing.Watch.Losses = []string{"bnxt_re0/1: 3 to_retransmits"}
	for id, cases := range map[string]map[p2p.Result][]*p2p.Proof{
		"ACT-EXPORT": {pass: {whole(), climb(chain.Refused, p2p.RungExport)}, fail: {at(p2p.NewProof(), p2p.RungAllocate, fail), at(climb(0, p2p.RungAllocate), p2p.RungExport, fail)}, unknown: {at(p2p.NewProof(), p2p.RungAllocate, unknown), at(climb(0, p2p.RungAllocate), p2p.RungExport, unknown)}, skip: {nil}},
		"GPU-EXPORT": {pass: {whole()}, fail: {at(p2p.NewProof(), p2p.RungAllocate, fail)}, unknown: {at(p2p.NewProof(), p2p.RungAllocate, unknown)}, skip: {nil}},
		"ACT-REG":    {pass: {whole()}, fail: {refused(climb(0, p2p.RungExport), unix.EINVAL)}, unknown: {at(climb(0, p2p.RungExport), p2p.RungRegister, unknown)}, skip: {nil, p2p.NewProof()}},
		"ACT-TRACE":  {pass: {whole()}, fail: {at(whole(), p2p.RungPlace, fail)}, unknown: {at(whole(), p2p.RungPlace, unknown)}, skip: {nil, p2p.NewProof()}},
		"GPU-BO-LOCATION": {
			pass:    {whole(), counted(untraced(), 300, 300), counted(untraced(), 256, 256), counted(whole(), 0, 0), counted(whole(), 300, 200)},
			fail:    {at(whole(), p2p.RungPlace, fail), counted(at(whole(), p2p.RungPlace, fail), 300, 300), counted(untraced(), 300, 44), counted(whole(), 256, 0)},
			unknown: {untraced(), counted(untraced(), 200, 200), counted(untraced(), 300, 200), uncounted(untraced()), grew(counted(untraced(), 600, 600), 0), grew(counted(untraced(), 600, 300), 0), grew(counted(untraced(), 600, 700), 255)},
			skip:    {nil, p2p.NewProof(), counted(p2p.NewProof(), 256, 0)},
		},
		"ACT-PREDICTION": {pass: {whole()}, fail: {climb(chain.Staged, p2p.RungRelease), refused(climb(0, p2p.RungExport), unix.EINVAL)}, unknown: {climb(chain.OutcomeUnknown, p2p.RungRelease)}, skip: {nil}},
		"ACT-WRITE":      {pass: {whole()}, fail: {at(whole(), p2p.RungWrite, fail)}, unknown: {at(whole(), p2p.RungWrite, unknown)}, skip: {nil, p2p.NewProof()}},
		"ACT-READ":       {pass: {whole()}, fail: {at(whole(), p2p.RungRead, fail)}, unknown: {at(whole(), p2p.RungRead, unknown)}, skip: {nil, p2p.NewProof()}},
		"ACT-CLEANUP":    {pass: {whole()}, fail: {at(whole(), p2p.RungRelease, fail)}, unknown: {at(whole(), p2p.RungRelease, unknown)}, skip: {nil, p2p.NewProof()}},
		"ACT-BW":         {pass: {whole()}, warn: {slow, slowWrite, slowBoth}, unknown: {uncompared, magic}, skip: {nil, p2p.NewProof()}},
		"ACT-ORDER":      {pass: {whole()}, fail: {at(whole(), p2p.RungOrder, fail)}, unknown: {at(whole(), p2p.RungOrder, unknown)}, skip: {nil, p2p.NewProof()}},
		"ACT-MIGRATE":    {skip: {nil, whole()}},
		"NET-LOOPBACK":   {pass: {whole(), at(whole(), p2p.RungWrite, fail)}, skip: {nil, p2p.NewProof(), at(whole(), p2p.RungWrite, unknown)}},
		"NET-PFC":        {pass: {nil, whole()}, warn: {losing}},
		"ACT-FAULTWATCH": {
			pass: {whole(), saw(whole(), "bnxt_en 0000:14:00.0: hello")}, unknown: {unread, notCounted}, skip: {nil},
			warn: {corrected, saw(whole(), "pcieport 0000:12:00.0: AER: Corrected error received: 0000:13:00.0")},
			fail: {growing, saw(whole(), fault)},
		},
	} {
		for want, proofs := range cases {
			for i, proof := range proofs {
				found := proven(t, id, proof)
				if got := worst(found); got != want {
					t.Errorf("%s, proof %d of %v: %v: %v", id, i, want, got, said(found))
				}
				for _, f := range found {
					sane(t, f)
				}
			}
		}
	}
}

// A link that is fast while data moves was idle before. A link that stays slow may belong to a GPU
// that so little data does not wake, unless the link had to repeat packets. The check stays unknown
// if software moved the data, or if the link's speed could not be read during the proof.
func TestBusyLink(t *testing.T) {
	of := func(speed, rate float64) *p2p.Proof {
		p := climb(chain.Direct, p2p.RungRelease)
		p.WriteRate, p.Watch.Speed = rate, speed
		return p
	}
	for _, c := range []struct {
		proof *p2p.Proof
		want  p2p.Result
	}{{of(32, 1e9), pass}, {of(16, 1e9), unknown}, {of(0, 1e9), unknown}, {of(32, 0), unknown}, {nil, unknown}} {
		found := proven(t, "PCIE-LINK-IDLE", c.proof, put(amdGPU+"/current_link_speed", "2.5 GT/s PCIe"))
		if got := worst(found); got != c.want {
			t.Errorf("%+v: %v, want %v: %v", c.proof, got, c.want, said(found))
		}
		for _, f := range found {
			sane(t, f)
			if f.Result == unknown && (f.Decides() || f.Remedy == nil || strings.Contains(f.Remedy.Change, "seat")) {
				t.Errorf("%+v: of a GPU that may be idle: %+v, %+v", c.proof, f, f.Remedy)
			}
		}
	}
	// A few errors come of training.
	repeats := put(amdGPU+"/aer_dev_correctable", "Timeout 3\nTOTAL_ERR_COR 3")
	grown := of(16, 1e9)
	grown.Watch.Errors = []string{"0000:13:00.0: 2 correctable"}
	for _, c := range []struct {
		proof *p2p.Proof
		want  p2p.Result
	}{{of(16, 1e9), unknown}, {grown, warn}} {
		if found := proven(t, "PCIE-LINK-IDLE", c.proof, put(amdGPU+"/current_link_speed", "16.0 GT/s PCIe"), repeats); worst(found) != c.want || !strings.Contains(found[0].Read, "Timeout 3") {
			t.Errorf("slow while data moved, with errors: %v, want %v", said(found), c.want)
		}
	}
}

// A virtual function that registered memory passes.
func TestProvenVirtualFunction(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	text(amdNIC+"/physfn", "../0000:14:00.1")(&tree)
	m := machine.Open(tree.Write(t))
	s := subject(m)
	for _, want := range []p2p.Result{unknown, pass} {
		var got []check.Finding
		for _, f := range Run(m, s) {
			if f.Check.ID == "VF-TRUST" {
				got = append(got, f)
			}
		}
		if worst(got) != want {
			t.Errorf("%v, want %v", said(got), want)
		}
		for i := range s.Pairs {
			s.Pairs[i].Proof = climb(chain.Direct, p2p.RungRegister)
		}
	}
}

// proven is what a check says of a machine all of whose pairs became that.
func proven(t *testing.T, id string, proof *p2p.Proof, edits ...edit) []check.Finding {
	t.Helper()
	tree := testenv.Machines["small-mi300"]()
	for _, e := range edits {
		e(&tree)
	}
	m := machine.Open(tree.Write(t))
	s := subject(m)
	for i := range s.Pairs {
		if s.Pairs[i].Prediction.Outcome != chain.Direct {
			t.Fatal(s.Pairs[i].Prediction)
		}
		s.Pairs[i].Proof = proof
	}
	for _, c := range All() {
		if c.ID != id {
			s.Skip = append(s.Skip, c.ID)
		}
	}
	return Run(m, s)
}

func TestAgrees(t *testing.T) {
	refusal := func(e unix.Errno) drivers.Prediction {
		return drivers.Prediction{Outcome: chain.Refused, Errno: e, Stage: chain.StageAttach}
	}
	for _, c := range []struct {
		predicted drivers.Prediction
		proof     *p2p.Proof
		want      placement.Answer
	}{
		{drivers.Prediction{Outcome: chain.Direct}, nil, placement.AnswerUnknown},
		{drivers.Prediction{Outcome: chain.Direct}, climb(chain.Direct, p2p.RungRelease), placement.Yes},
		{drivers.Prediction{Outcome: chain.Direct}, climb(chain.Staged, p2p.RungRelease), placement.No},
		{drivers.Prediction{Outcome: chain.Staged}, climb(chain.Direct, p2p.RungRelease), placement.No},
		{drivers.Prediction{Outcome: chain.Direct}, climb(chain.OutcomeUnknown, p2p.RungRelease), placement.AnswerUnknown},
		{drivers.Prediction{}, climb(chain.Direct, p2p.RungRelease), placement.AnswerUnknown},
		{refusal(unix.EINVAL), refused(p2p.NewProof(), unix.EINVAL), placement.Yes},
		{refusal(unix.EINVAL), refused(p2p.NewProof(), unix.EPERM), placement.No},
		{refusal(unix.EINVAL), climb(chain.Staged, p2p.RungRelease), placement.No},
	} {
		if got := (p2p.Pair{Prediction: c.predicted, Proof: c.proof}).Agrees(); got != c.want {
			t.Errorf("%v, proof %v: %v", c.predicted, c.proof, got)
		}
	}
}

// An unknown finding becomes a pass where all of the pairs that it concerns are proven to be direct.
func TestProofAnswers(t *testing.T) {
	tree := testenv.Machines["small-mi300"]()
	put("sys/module/amdgpu/taint", "OE")(&tree) // of DKMS
	m := machine.Open(tree.Write(t))
	s := subject(m)
	driver := func() p2p.Result {
		var found []check.Finding
		for _, f := range Run(m, s) {
			if f.Check.ID == "GPU-DRIVER" || f.Check.ID == "GPU-EXPORTER-OPS" {
				sane(t, f)
				found = append(found, f)
			}
		}
		return worst(found)
	}
	if r := driver(); r != p2p.ResultUnknown {
		t.Fatal(r)
	}
	for _, c := range []struct {
		last *p2p.Proof
		want p2p.Result
	}{
		{climb(chain.Direct, p2p.RungRelease), p2p.ResultPass},
		{at(climb(chain.Direct, p2p.RungRelease), p2p.RungRead, p2p.ResultFail), p2p.ResultUnknown},
		{climb(chain.Staged, p2p.RungRelease), p2p.ResultUnknown},
		{climb(chain.OutcomeUnknown, p2p.RungRelease), p2p.ResultUnknown},
		{nil, p2p.ResultUnknown},
	} {
		for i := range s.Pairs {
			s.Pairs[i].Proof = climb(chain.Direct, p2p.RungRelease)
		}
		s.Pairs[len(s.Pairs)-1].Proof = c.last
		if r := driver(); r != c.want {
			t.Errorf("%v: %v, want %v", c.last, r, c.want)
		}
	}
}

// A watch reports lines and counts that come while it runs, and none from before.
func TestWatch(t *testing.T) {
	tree := testenv.Machines["small-mi300"]()
	log("AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:14:00.0 domain=0x1]")(&tree)
	root := tree.Write(t)
	m := machine.Open(root)
	s := subject(m)
	if w := p2p.StartWatch(m, s.Pairs[0]).Stop(); w.LogErr != nil || len(w.Lines)+len(w.Errors)+len(w.Losses)+w.Others > 0 || !w.Counted || w.Speed != 0 {
		t.Errorf("%+v", w)
	}
	watcher := p2p.StartWatch(m, s.Pairs[0])
	counters := filepath.Join(root, amdGPU, "aer_dev_correctable")
	aside := counters + ".aside"
	if err := os.Rename(counters, aside); err != nil {
		t.Fatal(err)
	}
	if w := watcher.Stop(); w.Counted {
		t.Error("the errors of a GPU whose counters are gone are counted")
	}
	if err := os.Rename(aside, counters); err != nil {
		t.Fatal(err)
	}
	watcher = p2p.StartWatch(m, s.Pairs[0])
	f, err := os.OpenFile(filepath.Join(root, "dev/kmsg"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{
		"AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:13:00.0 domain=0x1]", // the GPU
		"pcieport 0000:12:01.0: something about a port",
		"infiniband bnxt_re0: something about the NIC",
		"infiniband bnxt_re00: another NIC",
		"pcieport 0000:99:00.0: AER: Corrected error received", // not on the way
		"nothing that matters",
		"NVRM: dma-buf attach failed", // of no device by name
	}
	_, err = f.WriteString("4,9,9,-;" + strings.Join(lines, "\n4,9,9,-;") + "\n SUBSYSTEM=pci\n")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		amdNIC + "/aer_dev_fatal":              "DLP 2\nTOTAL_ERR_FATAL 2\n",
		aPort + "/hw_counters/out_of_sequence": "3\n",
		aPort + "/hw_counters/RTO":             "7\n", // the counter was not read before
		amdGPU + "/current_link_speed":         "16.0 GT/s PCIe\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	watcher.Look()
	testenv.WriteFile(t, filepath.Join(root, amdGPU+"/current_link_speed"), "2.5 GT/s PCIe\n") // idle again
	watcher.Look()
	w := watcher.Stop()
	want := []string{lines[0], lines[1], lines[2], lines[6]}
	if !slices.Equal(w.Lines, want) || w.Others != 3 || w.LogErr != nil || !slices.Equal(w.Errors, []string{"0000:14:00.0: 2 fatal"}) || !w.Fatal || !slices.Equal(w.Losses, []string{"bnxt_re0/1: 3 out_of_sequence"}) || w.Speed != 16 {
		t.Errorf("%+v", w)
	}
	if faults, hits := w.Judged(); !faults || !hits {
		t.Error("the fault was not seen")
	}

	if err := os.Remove(filepath.Join(root, "dev/kmsg")); err != nil {
		t.Fatal(err)
	}
	if w := p2p.StartWatch(m, s.Pairs[0]).Stop(); !errors.Is(w.LogErr, unix.ENOENT) {
		t.Errorf("%+v", w)
	}
}

// For a GPU with several NICs the best result counts, and a failure counts before an unknown one, in any
// order of trials.
func TestOfAGPU(t *testing.T) {
	for _, results := range [][]p2p.Result{{unknown, fail, fail}, {fail, unknown, fail}, {unknown, pass, pass}, {fail, pass, pass}} {
		m := machine.Open(testenv.Machines["small-mi300"]().Write(t))
		s := subject(m)
		for i := range s.Pairs {
			s.Pairs[i].Proof = at(climb(chain.Direct, p2p.RungRelease), p2p.RungPlace, results[i%2])
		}
		for _, c := range All() {
			if c.ID != "GPU-BO-LOCATION" {
				s.Skip = append(s.Skip, c.ID)
			}
		}
		if found := Run(m, s); worst(found) != results[2] {
			t.Errorf("%v: %v", results, said(found))
		}
	}
}
