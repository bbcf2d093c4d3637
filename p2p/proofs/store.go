// SPDX-License-Identifier: Apache-2.0

package proofs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Schema is the schema of the file.
const Schema = "p2pcheck-proofs/v1"

// limit is larger than the proofs of any machine: 16 GPUs with 16 NICs take 1 MiB.
const limit = 64 << 20

// Store has the proofs of one boot.
type Store struct {
	Schema  string   `json:"schema"`  // "p2pcheck-proofs/v1"
	Boot    string   `json:"boot"`    // the ID of the boot: a proof does not hold for another one
	Records []Record `json:"records"` // the proofs, one for each pair and class of sizes
}

// Read reads what Write has written. It returns an error for a file of another schema, for records that no trial makes,
// and for more than 64 MiB.
func Read(r io.Reader) (Store, error) {
	var s Store
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return s, err
	case len(data) > limit:
		return s, fmt.Errorf("it is larger than %d bytes", limit)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return Store{}, fmt.Errorf("it has no proofs of p2pcheck: %w", err)
	}
	if s.Schema != Schema {
		return Store{}, fmt.Errorf("it has no proofs of p2pcheck: its schema is %q, not %q", s.Schema, Schema)
	}
	for _, r := range s.Records {
		if err := r.valid(); err != nil {
			return Store{}, fmt.Errorf("the proof of %s -> %s: %w", r.GPU, r.NIC, err)
		}
	}
	return s, nil
}

// valid reports a record that recordOf could have made.
func (r Record) valid() error {
	if o, err := chain.ParseOutcome(r.Outcome); err != nil || o == chain.OutcomeUnknown {
		return fmt.Errorf("the outcome %q is none that a proof has", r.Outcome)
	}
	if len(r.Links) != int(chain.Fabric)+1 {
		return fmt.Errorf("it has %d links, not %d", len(r.Links), int(chain.Fabric)+1)
	}
	for i, l := range r.Links {
		if l.Link != chain.Link(i).String() {
			return fmt.Errorf("link %d is %q, not %q", i, l.Link, chain.Link(i))
		}
	}
	return nil
}

// Write writes the proofs.
func (s Store) Write(w io.Writer) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

var errNoBoot = errors.New("the boot that a proof holds for is not known")

// Keep adds the proofs of pairs that were tried on m, in place of earlier ones of the same pairs, kinds of
// memory and classes of size. It drops the proofs of another boot. A trial during which a circumstance has changed, or
// that the log contradicts, removes the earlier proof, and adds none. The only error is that the boot's ID cannot be
// read; Keep then changes nothing.
func (s *Store) Keep(m *machine.Machine, trials []Trial, now time.Time) error {
	boot := m.Read(bootID)
	if boot.Err != nil {
		return fmt.Errorf("%w: %s", errNoBoot, boot.Why())
	}
	if s.Records == nil || s.Boot != boot.Text {
		s.Records = []Record{}
	}
	s.Schema, s.Boot = Schema, boot.Text
	for _, t := range trials {
		p := t.Pair
		r, ok := recordOf(t, now)
		changed := t.Changed() != "" // it is not known to which of the two states the proof belongs
		if !ok && !changed {
			continue
		}
		s.Records = slices.DeleteFunc(s.Records, func(o Record) bool {
			return o.of(p) && o.Memory == r.Memory && o.Class == r.Class
		})
		if changed {
			continue
		}
		// A trial that the log contradicted, or in which a rung failed, is no proof. The earlier proof is gone.
		if r.Outcome == chain.Direct.String() && (p.Verdict.Outcome() != chain.Direct || p.Proof.Failed() || p.Proof.Watch.Fatal) {
			continue
		}
		s.Records = append(s.Records, r)
	}
	return nil
}

// of reports a record of this pair.
func (r Record) of(p p2p.Pair) bool { return r.GPU == p.GPU.Name && r.NIC == p.NIC.Name }

// Recall sets the link Proof of a pair to the answer of the record that covers the pair, and makes the verdict again.
// If a circumstance of the record has changed, the answer is unknown and names it. Without a record Recall does
// nothing. file is the name of the file, for the evidence.
func (s Store) Recall(m *machine.Machine, p *p2p.Pair, file string) {
	otherBoot := ""
	if boot := m.Read(bootID); boot.Err != nil {
		otherBoot = "which boot this is is not known: " + boot.Why()
	} else if boot.Text != s.Boot {
		otherBoot = "the machine was started anew since"
	}
	var r *Record
	why := "" // r does not cover the pair any more
	for i := range s.Records {
		o := &s.Records[i]
		if !o.of(*p) || o.valid() != nil {
			continue
		}
		not := cmp.Or(otherBoot, o.changed(m, *p))
		// A record that covers the pair counts before one that does not any more. If there are proofs of
		// several classes of sizes, one that is not direct decides: the pair is not direct for every size.
		if r == nil || why != "" && not == "" || (why == "") == (not == "") && o.Outcome != chain.Direct.String() {
			r, why = o, not
		}
	}
	if r == nil {
		return
	}
	if why != "" {
		again := p.Verdict.Link(chain.Proof).Remedy
		p.Recall(m, chain.Open("the proof of %s does not cover the pair any more: %s", r.Taken.Format(time.RFC3339), why).Fix(again), nil)
		return
	}
	p.Recall(m, r.answer(file), r.LastLine)
}
