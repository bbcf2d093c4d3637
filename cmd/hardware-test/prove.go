// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/result"
)

const liveFile = "live.json"

// whatProofDoes is the text of what is asked of each pair.
const whatProofDoes = "registration of 256 KiB of each GPU with each RDMA NIC, RDMA WRITE and READ of every byte, and a trace of where the bytes are (p2pcheck --live)"

// prove lets p2pcheck try each pair, and keeps its document without names. A run that was cut
// off has the pairs that it tried.
func (h *hardware) prove(ctx context.Context) (*result.Run, error) {
	text, err := run(ctx, proveLimit, program{path: h.program("p2pcheck"), args: []string{"--live", "--json", "--timeout", pairLimit.String()}})
	if code, ok := status(err); ok && (code == result.StatusBad || code == result.StatusUnknown) {
		err = nil // a pair is not direct, or something is not known
	}
	var d struct {
		Result *result.Run `json:"result"`
	}
	if e := json.Unmarshal(text, &d); e != nil || d.Result == nil {
		if err == nil {
			err = fmt.Errorf("p2pcheck --live printed no result: %v", e)
		}
		return nil, err
	}
	if e := os.WriteFile(filepath.Join(h.out, liveFile), []byte(h.scrub.text(string(text))), 0o644); e != nil {
		return nil, e
	}
	return d.Result, err
}

// observed is what became of a pair.
type observed struct {
	outcome string // "direct", "staged", "refused", "lost", "not direct", "arrived", or ""
	errno   *result.Errno
	why     string
}

// arrived is the outcome of a pair whose bytes all arrived, and of which no trace says where they
// were.
const (
	arrived   = "arrived"
	notDirect = "not direct"
)

// observe reads a proof. The outcome is "" where nothing was proven.
func observe(p result.Pair) observed {
	q := p.Proof
	if q == nil {
		return observed{why: "it was not tried"}
	}
	step := map[string]string{}
	for _, s := range q.Steps {
		step[s.Step] = s.Result
	}
	moved, broke := step["written"] == "pass" && step["read"] == "pass", step["written"] == "fail" || step["read"] == "fail"
	o := observed{outcome: q.Outcome, errno: q.Errno, why: q.Why}
	switch {
	case q.Outcome == "direct" && broke:
		o.outcome = "lost"
	case q.Outcome == "direct" && !moved:
		o.outcome, o.why = "", "no bytes were moved: "+q.Why
	case q.Outcome == "unknown" && broke:
		o.outcome = notDirect
	case q.Outcome == "unknown" && moved:
		o.outcome = arrived
	case q.Outcome == "unknown":
		o.outcome = ""
	}
	if broke {
		for _, s := range q.Steps {
			if s.Result == "fail" {
				o.why = strings.TrimSpace(s.Step + ": " + s.Detail)
				break
			}
		}
	}
	return o
}
