// SPDX-License-Identifier: Apache-2.0

package proofs

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

const (
	port = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0"
	gpu  = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0"
	nic  = port + "/0000:14:00.0"
)

// server is a machine with one GPU and one NIC below a switch, and the files that a proof depends on.
func server() testenv.Tree {
	tree := testenv.HGX()
	tree.Files = maps.Clone(tree.Files)
	maps.Copy(tree.Files, map[string]string{
		bootID: "11111111-2222-3333-4444-555555555555\n", "sys/module/nvidia/srcversion": "A1\n", "sys/module/mlx5_ib/srcversion": "B1\n",
		nic + "/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
		"dev/kmsg":                        "6,100,0,-;Linux version 7.2.12+deb13-amd64 (gcc)\n6,107,9,-;mlx5_core 0000:14:00.0: enabled\n",
	})
	return tree
}

// judged is the first pair of a machine.
func judged(t *testing.T, tree testenv.Tree, spoil func(root string)) (*machine.Machine, p2p.Pair) {
	t.Helper()
	root := tree.Write(t)
	if spoil != nil {
		spoil(root)
	}
	m := machine.Open(root)
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if err1 != nil || err2 != nil || gpus[1].Name != "0000:13:00.0" || nics[0].Name != "mlx5_0" {
		t.Fatal(err1, err2)
	}
	return m, p2p.Judge(m, gpus[1], nics[0])
}

// tried is a proof of which all rungs passed, or that ended with another outcome.
func tried(outcome chain.Outcome, size int64) *p2p.Proof {
	p := p2p.NewProof()
	p.Outcome, p.Why, p.Memory, p.Size, p.Verified = outcome, "a test says so", "vram", size, 4096
	for r := range p.Steps {
		p.Steps[r] = p2p.Step{Result: p2p.ResultPass, Detail: "done"}
	}
	return p
}

// trial is a pair that was tried on m, while nothing changed.
func trial(m *machine.Machine, p p2p.Pair) Trial {
	c := Observe(m, p)
	return Trial{Pair: p, Before: c, After: c}
}

// kept are the proofs of a pair of server, taken after the record 107 of the log.
func kept(t *testing.T, all ...*p2p.Proof) Store {
	t.Helper()
	var s Store
	for _, proof := range all {
		m, pair := judged(t, server(), nil)
		last := uint64(107)
		proof.Watch.Last = &last
		pair.Prove(m, proof)
		if err := s.Keep(m, []Trial{trial(m, pair)}, time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
	}
	// The store reads back the records that it kept.
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	s, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A proof decides about its pair while everything that it depends on is as it was.
func TestRecall(t *testing.T) {
	edit := func(name, text string) func(*testenv.Tree) {
		return func(tree *testenv.Tree) { tree.Files[name] = text }
	}
	deny := func(name string) func(string) {
		return func(root string) {
			at := filepath.Join(root, name)
			if err := os.RemoveAll(at); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Base(at), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	// port2 sets the ACS of the NIC's port, as setpci does.
	port2 := func(acs string) func(*testenv.Tree) {
		return func(tree *testenv.Tree) { setACS(tree, "0000:12:01.0", acs) }
	}
	const fault = "DMAR: [DMA Write NO_PASID] Request device [14:00.0] PTE Write access is not set"
	direct := func() []*p2p.Proof { return []*p2p.Proof{tried(chain.Direct, 256<<10)} }
	for name, c := range map[string]struct {
		proofs []*p2p.Proof
		edit   func(*testenv.Tree)
		spoil  func(string)
		want   chain.Outcome
		proof  chain.State
		says   string
	}{
		"as it was":                                   {proofs: direct(), want: chain.Direct, proof: chain.Holds, says: "proven at 2026-11-26T08:00:00Z for vram up to 2 MiB, without another importer: a test says so"},
		"staged, against the prediction":              {proofs: []*p2p.Proof{tried(chain.Staged, 1)}, want: chain.Staged, proof: chain.Breaks, says: "tried at 2026-11-26T08:00:00Z with vram up to 2 MiB: a test says so"},
		"one size is staged":                          {proofs: []*p2p.Proof{tried(chain.Direct, 1), tried(chain.Staged, 1<<30)}, want: chain.Staged, proof: chain.Breaks, says: "vram above 256 MiB"},
		"one size is staged, tried first":             {proofs: []*p2p.Proof{tried(chain.Staged, 1<<30), tried(chain.Direct, 1)}, want: chain.Staged, proof: chain.Breaks, says: "vram above 256 MiB"},
		"tried anew":                                  {proofs: []*p2p.Proof{tried(chain.Staged, 1), tried(chain.Direct, 2)}, want: chain.Direct, proof: chain.Holds, says: "proven at"},
		"an attempt that proved nothing":              {proofs: []*p2p.Proof{tried(chain.Direct, 1), tried(chain.OutcomeUnknown, 1)}, want: chain.Direct, proof: chain.Holds, says: "proven at"},
		"what it depends on is not readable any more": {proofs: direct(), spoil: deny(port + "/config"), want: chain.Direct, proof: chain.Holds, says: "proven at"},
		"started anew":                                {direct(), edit(bootID, "66666666-2222-3333-4444-555555555555\n"), nil, chain.Direct, chain.Unknown, "the machine was started anew since"},
		"the boot is not readable":                    {direct(), nil, deny(bootID), chain.Direct, chain.Unknown, "which boot this is is not known"},
		"another driver of the GPU":                   {direct(), edit("sys/module/nvidia/srcversion", "A2\n"), nil, chain.Direct, chain.Unknown, "/sys/module/nvidia/srcversion has changed since"},
		"another driver of the NIC":                   {direct(), edit("sys/module/mlx5_ib/srcversion", "B2\n"), nil, chain.Direct, chain.Unknown, "/sys/module/mlx5_ib/srcversion has changed since"},
		"another firmware":                            {direct(), edit(nic+"/infiniband/mlx5_0/fw_ver", "28.43.1000\n"), nil, chain.Direct, chain.Unknown, "fw_ver has changed since"},
		"a module more":                               {direct(), edit("sys/module/ib_core/srcversion", "C1\n"), nil, chain.Direct, chain.Unknown, "/sys/module/ib_core/srcversion has changed since"},
		"another GPU": {direct(), func(tree *testenv.Tree) {
			tree.Functions = strings.ReplaceAll(tree.Functions, "device=0x2330", "device=0x2335")
		}, nil, chain.Direct, chain.Unknown, "/device has changed since"},
		"an IOMMU that translates now": {direct(), func(tree *testenv.Tree) {
			tree.Functions = strings.ReplaceAll(tree.Functions, ":identity", ":DMA-FQ")
		}, nil, chain.Direct, chain.Unknown, "does not cover the pair any more"},
		"a port's ACS was changed, and its answer is not known": {direct(), port2("0x20"), nil, chain.OutcomeUnknown, chain.Unknown, "ACS of 0000:12:01.0 has changed since"},
		"a port's ACS was changed, and the pair stays good":     {direct(), port2("0x40"), nil, chain.Direct, chain.Unknown, "ACS of 0000:12:01.0 has changed since"},
		"the driver has other parameters":                       {direct(), edit("proc/driver/nvidia/params", "DmaRemapPeerMmio: 0\n"), nil, chain.OutcomeUnknown, chain.Unknown, "/proc/driver/nvidia/params has changed since"},
		"the NIC's ATS was turned on": {direct(), func(tree *testenv.Tree) {
			tree.Functions = strings.Replace(tree.Functions, "rdma:mlx5_0", "rdma:mlx5_0 ats=0x8000", 1)
		}, nil, chain.Direct, chain.Unknown, "ATS and ordering of 0000:14:00.0 has changed since"},
		"an older line of the log":                 {direct(), edit("dev/kmsg", "6,100,0,-;Linux\n4,104,5,-;"+fault+"\n6,109,9,-;x\n"), nil, chain.Direct, chain.Holds, "proven at"},
		"a newer line of the log":                  {direct(), edit("dev/kmsg", "6,100,0,-;Linux\n4,108,5,-;"+fault+"\n"), nil, chain.OutcomeUnknown, chain.Holds, "proven at"},
		"a newer line of the log, after a refusal": {[]*p2p.Proof{tried(chain.Staged, 1)}, edit("dev/kmsg", "6,100,0,-;Linux\n4,108,5,-;"+fault+"\n"), nil, chain.Staged, chain.Breaks, "tried at"},
	} {
		t.Run(name, func(t *testing.T) {
			s := kept(t, c.proofs...)
			tree := server()
			if c.edit != nil {
				c.edit(&tree)
			}
			m, pair := judged(t, tree, c.spoil)
			without := pair.Verdict
			s.Recall(m, &pair, "/run/proofs")
			proof := pair.Verdict.Link(chain.Proof)
			if pair.Verdict.Outcome() != c.want || proof.State != c.proof || !strings.Contains(proof.Text(), c.says) {
				t.Errorf("%v; proof %v: %s; want %v, %v, %q", pair.Verdict, proof.State, proof.Text(), c.want, c.proof, c.says)
			}
			if c.proof == chain.Unknown && pair.Verdict.Outcome() != without.Outcome() {
				t.Errorf("a proof that does not cover the pair made %v of %v", pair.Verdict, without)
			}
		})
	}
}

func setACS(tree *testenv.Tree, port, acs string) {
	var out strings.Builder
	for line := range strings.Lines(tree.Functions) {
		if dir, _, _ := strings.Cut(line, " "); strings.HasSuffix(dir, port) {
			line = dir + " class=0x060400 type=6 acs=" + acs + "\n"
		}
		out.WriteString(line)
	}
	tree.Functions = out.String()
}

// A link that was not known when the proof was taken, and is known to break now, ends the proof.
func TestRecallBroken(t *testing.T) {
	was, is := server(), server()
	for _, port := range []string{"0000:12:00.0", "0000:12:01.0"} {
		setACS(&was, port, "0x08")
		setACS(&is, port, "0x04")
	}
	m, pair := judged(t, was, nil)
	if pair.Verdict.Link(chain.Fabric).State != chain.Unknown {
		t.Fatalf("%v", pair.Verdict)
	}
	var s Store
	pair.Prove(m, tried(chain.Direct, 1))
	if err := s.Keep(m, []Trial{trial(m, pair)}, time.Now()); err != nil || len(s.Records) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	m, pair = judged(t, is, nil)
	s.Records[0].Circumstances["ACS of 0000:12:01.0"] = notRead // the link alone has to tell
	if s.Recall(m, &pair, "f"); pair.Verdict.Outcome() != chain.Lost {
		t.Errorf("%v", pair.Verdict)
	}
}

// A run that the log contradicted, or in which a rung failed, is no proof, and ends an earlier one.
func TestKeepVoids(t *testing.T) {
	for name, spoil := range map[string]func(*p2p.Proof){
		"the log": func(p *p2p.Proof) {
			p.Watch.Lines = []string{"DMAR: [DMA Write NO_PASID] Request device [14:00.0] PTE Write access is not set"}
		},
		"a flag before its data": func(p *p2p.Proof) { p.Steps[p2p.RungOrder].Result = p2p.ResultFail },
		"a fatal error":          func(p *p2p.Proof) { p.Watch.Fatal = true },
	} {
		s := kept(t, tried(chain.Direct, 1))
		m, pair := judged(t, server(), nil)
		proof := tried(chain.Direct, 1)
		spoil(proof)
		pair.Prove(m, proof)
		if err := s.Keep(m, []Trial{trial(m, pair)}, time.Now()); err != nil || len(s.Records) != 0 {
			t.Errorf("%s: %+v, %v", name, s.Records, err)
		}
	}
}

// A proof while which something changed is of no state of the machine that is known. It is not kept,
// and ends an earlier one. A GPU that the proof woke is no change.
func TestKeepChanged(t *testing.T) {
	for name, c := range map[string]struct {
		fact, before, after string
		want                int
	}{
		"a port's ACS":              {"ACS of 0000:12:01.0", "0x1", "0x5", 0},
		"a module was loaded":       {"/sys/module/nvidia_peermem/srcversion", absent, "A1", 0},
		"what was not readable":     {"ACS of 0000:12:01.0", notRead, "0x1", 1},
		"the GPU slept before":      {"/sys/bus/pci/devices/0000:13:00.0/power/runtime_status", "suspended", "active", 1},
		"a fact that was not there": {"another", "", "x", 0},
	} {
		s := kept(t, tried(chain.Direct, 1))
		m, pair := judged(t, server(), nil)
		pair.Prove(m, tried(chain.Direct, 1))
		now := trial(m, pair)
		now.Before, now.After = maps.Clone(now.Before), maps.Clone(now.After)
		now.Before[c.fact], now.After[c.fact] = c.before, c.after
		if c.before == "" {
			delete(now.Before, c.fact)
		}
		void := s
		void.Records = slices.Clone(s.Records)
		if err := s.Keep(m, []Trial{now}, time.Now()); err != nil || len(s.Records) != c.want {
			t.Errorf("%s: %v, %d records, want %d", name, err, len(s.Records), c.want)
		}
		// The command takes the outcome of such a proof away, too.
		if now.Changed() != "" {
			now.Pair.Proof.Void("it changed")
			now.Pair.Prove(m, now.Pair.Proof)
		}
		if err := void.Keep(m, []Trial{now}, time.Now()); err != nil || len(void.Records) != c.want || c.want == 0 && now.Pair.Verdict.Link(chain.Proof).State != chain.Unknown {
			t.Errorf("%s, void: %v, %d records, want %d: %v", name, err, len(void.Records), c.want, now.Pair.Verdict)
		}
	}
}

// A record that Write could not have written is left out. A number of a line that the log does not have
// makes no line older.
func TestRecallForged(t *testing.T) {
	const fault = "4,108,5,-;DMAR: [DMA Write NO_PASID] Request device [14:00.0] PTE Write access is not set\n"
	s := kept(t, tried(chain.Direct, 1))
	huge := ^uint64(0)
	s.Records[0].LastLine = &huge
	tree := server()
	tree.Files["dev/kmsg"] += fault
	m, pair := judged(t, tree, nil)
	if s.Recall(m, &pair, "f"); pair.Verdict.Outcome() == chain.Direct {
		t.Errorf("%v", pair.Verdict)
	}
	s.Records[0].Links = nil
	m, pair = judged(t, server(), nil)
	if s.Recall(m, &pair, "f"); pair.Verdict.Link(chain.Proof).Text() != "it was not tried" {
		t.Errorf("%v", pair.Verdict)
	}
}

// The proof of one kernel is none of a kernel that is supposed.
func TestRecallSupposed(t *testing.T) {
	s := kept(t, tried(chain.Direct, 1))
	root := server().Write(t)
	for _, release := range []string{"7.9.0", "6.1.0", "nonsense"} {
		m := machine.Source{Root: root, Release: release}.Open()
		gpus, err1 := drivers.GPUs(m)
		nics, err2 := drivers.NICs(m)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		pair := p2p.Judge(m, gpus[1], nics[0])
		if s.Recall(m, &pair, "f"); !strings.Contains(pair.Verdict.Link(chain.Proof).Text(), "does not cover the pair any more: ") {
			t.Errorf("%s: %v", release, pair.Verdict)
		}
	}
}

// A proof makes a pair direct that was not known, and only that pair.
func TestRecallUnknown(t *testing.T) {
	unknown := func() testenv.Tree {
		tree := server()
		delete(tree.Files, "proc/driver/nvidia/version")
		tree.Files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  999.10  Release Build\n"
		tree.Files["sys/module/nvidia/version"] = "999.10\n"
		return tree
	}
	m, pair := judged(t, unknown(), nil)
	if pair.Verdict.Outcome() != chain.OutcomeUnknown {
		t.Fatalf("%v", pair.Verdict)
	}
	var s Store
	pair.Prove(m, tried(chain.Direct, 1))
	if err := s.Keep(m, []Trial{trial(m, pair)}, time.Now()); err != nil {
		t.Fatal(err)
	}
	m, pair = judged(t, unknown(), nil)
	if s.Recall(m, &pair, "f"); pair.Verdict.Outcome() != chain.Direct {
		t.Errorf("%v", pair.Verdict)
	}
	nics, err := drivers.NICs(m)
	if err != nil {
		t.Fatal(err)
	}
	other := p2p.Judge(m, pair.GPU, nics[1])
	if s.Recall(m, &other, "f"); other.Verdict.Outcome() != chain.OutcomeUnknown || other.Verdict.Link(chain.Proof).Text() != "it was not tried" {
		t.Errorf("%v", other.Verdict)
	}
}

// Proofs of another boot are dropped. On a machine whose boot is not known nothing is kept.
func TestKeep(t *testing.T) {
	s := kept(t, tried(chain.Direct, 1))
	tree := server()
	tree.Files[bootID] = "another\n"
	m, pair := judged(t, tree, nil)
	if err := s.Keep(m, nil, time.Now()); err != nil || len(s.Records) != 0 || s.Boot != "another" {
		t.Errorf("%+v, %v", s, err)
	}
	delete(tree.Files, bootID)
	m, pair = judged(t, tree, nil)
	pair.Prove(m, tried(chain.Direct, 1))
	if err := s.Keep(m, []Trial{trial(m, pair)}, time.Now()); err == nil || len(s.Records) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestReadRefuses(t *testing.T) {
	var b strings.Builder
	if err := kept(t, tried(chain.Direct, 1)).Write(&b); err != nil {
		t.Fatal(err)
	}
	good := b.String()
	if _, err := Read(strings.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, says string }{
		"empty":                  {"", "it has no proofs of p2pcheck"},
		"another document":       {`{"schema":"p2pcheck/v2"}`, `its schema is "p2pcheck/v2"`},
		"two documents":          {good + good, "it has no proofs"},
		"an outcome of no proof": {strings.Replace(good, `"outcome": "direct"`, `"outcome": "perhaps"`, 1), `the outcome "perhaps"`},
		"an unknown outcome":     {strings.Replace(good, `"outcome": "direct"`, `"outcome": "unknown"`, 1), `the outcome "unknown"`},
		"a link too few":         {strings.Replace(good, `"links": [`, `"links": [], "other": [`, 1), "it has 0 links"},
		"links in another order": {strings.Replace(good, `"link": "route"`, `"link": "fabric"`, 1), `link 1 is "fabric"`},
		"too large":              {strings.Repeat(" ", limit+1), "it is larger than"},
	} {
		if _, err := Read(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// A record that does not cover the pair any more hides none that does, whichever is first and of
// whichever outcome.
func TestRecallStale(t *testing.T) {
	stale := func(s Store, i int) Store {
		c := maps.Clone(s.Records[i].Circumstances)
		c["ACS of 0000:12:01.0"] = "0x7f"
		s.Records[i].Circumstances = c
		return s
	}
	for name, c := range map[string]struct {
		proofs []*p2p.Proof
		stale  []int
		want   chain.Outcome
		state  chain.State
	}{
		"a staged one is stale":            {[]*p2p.Proof{tried(chain.Direct, 1), tried(chain.Staged, 1<<30)}, []int{1}, chain.Direct, chain.Holds},
		"a staged one is stale, and first": {[]*p2p.Proof{tried(chain.Staged, 1<<30), tried(chain.Direct, 1)}, []int{0}, chain.Direct, chain.Holds},
		"a direct one is stale":            {[]*p2p.Proof{tried(chain.Direct, 1), tried(chain.Staged, 1<<30)}, []int{0}, chain.Staged, chain.Breaks},
		"of two staged ones one is stale":  {[]*p2p.Proof{tried(chain.Staged, 1), tried(chain.Staged, 1<<30)}, []int{1}, chain.Staged, chain.Breaks},
		"a staged one is stale, of three":  {[]*p2p.Proof{tried(chain.Direct, 1), tried(chain.Staged, 4<<20), tried(chain.Staged, 1<<30)}, []int{2}, chain.Staged, chain.Breaks},
		"both are stale":                   {[]*p2p.Proof{tried(chain.Direct, 1), tried(chain.Staged, 1<<30)}, []int{0, 1}, chain.Direct, chain.Unknown},
	} {
		s := kept(t, c.proofs...)
		for _, i := range c.stale {
			s = stale(s, i)
		}
		m, pair := judged(t, server(), nil)
		s.Recall(m, &pair, "f")
		if l := pair.Verdict.Link(chain.Proof); pair.Verdict.Outcome() != c.want || l.State != c.state {
			t.Errorf("%s: %v; the proof %v: %s", name, pair.Verdict, l.State, l.Text())
		}
	}
}
