// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// Limits of a run. No machine reaches them. Read refuses a file that exceeds one before it allocates memory for
// the content.
const (
	// MaxBytes is the greatest length of a file: a run of 1,000 pairs has 6 MiB.
	MaxBytes = 8 << 20
	// MaxValues is the greatest number of values in a document: a run of 1,000 pairs has 280,000.
	MaxValues   = 600_000
	maxPairs    = 4_096
	maxFindings = 10_000
	maxDevices  = 4_096
	maxLinks    = 16 // of a pair
	maxItems    = 4_096
)

// document is what p2pcheck prints with --json.
type document struct {
	Schema  string      `json:"schema"`
	Command string      `json:"command"`
	Status  int         `json:"exit_status"`
	Result  *result.Run `json:"result"`
	Errors  []struct {
		Message string `json:"message"`
	} `json:"errors"`
}

// errTooMany says that a document has more than any machine.
var errTooMany = errors.New("it has more than any machine")

// Read reads a document that p2pcheck has printed with --json: one of result.Schema, or of result.SchemaV1, whose
// pairs have no links. It computes the counts of pairs and findings from these, and ignores the document's own.
// The errors do not name the file.
func Read(r io.Reader) (result.Run, error) {
	data, err := whole(r)
	if err != nil {
		return result.Run{}, err
	}
	return decode(data)
}

func whole(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) == 0:
		return nil, errors.New("it is empty")
	case isSnapshot(data):
		return nil, errors.New("it is a snapshot, and no run: `p2pcheck --snapshot FILE --json -o RUN.json` makes a run of it")
	case len(data) > MaxBytes:
		return nil, fmt.Errorf("it is longer than %d MiB, and no run is", MaxBytes>>20)
	}
	return data, nil
}

// isSnapshot reports a compressed tar archive, as `p2pcheck snapshot` writes.
func isSnapshot(data []byte) bool {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return false
	}
	_, err = tar.NewReader(z).Next()
	return err == nil
}

// decoding accepts what encoding/json accepts, as earlier versions did, and bounds each list.
var decoding = json.JoinOptions(
	jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(
		atMost[result.Pair](maxPairs), atMost[result.Finding](maxFindings), atMost[result.GPU](maxDevices), atMost[result.NIC](maxDevices),
		atMost[result.Link](maxLinks), atMost[result.Evidence](maxItems), atMost[result.Drift](maxFindings), atMost[string](maxItems),
		json.UnmarshalFromFunc(nanoseconds),
	)),
)

// nanoseconds reads a duration, which the document has as a number.
func nanoseconds(d *jsontext.Decoder, t *time.Duration) error {
	var n int64
	err := json.UnmarshalDecode(d, &n)
	*t = time.Duration(n)
	return err
}

// atMost bounds lists of a kind.
func atMost[T any](most int) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, list *[]T) error {
		if d.PeekKind() != '[' {
			return errors.ErrUnsupported // null, or a mistake that the library describes
		}
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		*list = []T{}
		for d.PeekKind() != ']' {
			if len(*list) == most {
				return errTooMany
			}
			var one T
			if err := json.UnmarshalDecode(d, &one); err != nil {
				return err
			}
			*list = append(*list, one)
		}
		_, err := d.ReadToken()
		return err
	})
}

func decode(data []byte) (result.Run, error) {
	if err := counted(data); err != nil {
		return result.Run{}, mistake(err)
	}
	var d document
	err := json.Unmarshal(data, &d, decoding) // one document, and nothing behind it
	switch {
	case err != nil:
		return result.Run{}, mistake(err)
	case d.Schema != result.Schema && d.Schema != result.SchemaV1 || d.Command != "check":
		return result.Run{}, fmt.Errorf("it is not what p2pcheck --json prints: schema %q, command %q", d.Schema, d.Command)
	case d.Result == nil:
		return result.Run{}, errors.New("it is of a run that found nothing")
	}
	r := *d.Result
	r.Schema, r.Ran = d.Schema, d.Status
	for _, e := range d.Errors {
		r.Said = append(r.Said, e.Message)
	}
	if err := outcomes(r); err != nil {
		return result.Run{}, err
	}
	if err := words(r); err != nil {
		return result.Run{}, err
	}
	r.Summary, r.Tally = result.Summarize(r.Pairs), result.TallyOf(r.Checks)
	terminal.Clean(&r)
	return r, nil
}

// outcomes completes the pairs of a run of the first schema, and fails for pairs that no run has.
func outcomes(r result.Run) error {
	for i, p := range r.Pairs {
		if r.Schema == result.SchemaV1 {
			r.Pairs[i].Predicted = p.Outcome
		}
		switch {
		case !result.IsOutcome(p.Outcome):
			return fmt.Errorf("a pair has the outcome %q", p.Outcome)
		case r.Schema != result.SchemaV1 && len(p.Links) == 0:
			return fmt.Errorf("%s -> %s has no links, which a pair of %s has", terminal.Line(p.GPU), terminal.Line(p.NIC), r.Schema)
		case p.Proof != nil && !result.IsOutcome(p.Proof.Outcome):
			return fmt.Errorf("a proof has the outcome %q", p.Proof.Outcome)
		}
	}
	return nil
}

// words fails for findings and differences that no run has: a word that no reader knows would count as nothing.
func words(r result.Run) error {
	for _, f := range r.Checks {
		if !slices.Contains(result.Ranks, f.Result) {
			return fmt.Errorf("a finding of %s has the result %q", terminal.Line(f.ID), f.Result)
		}
	}
	for _, d := range r.Drift {
		if d.Change != "" && !slices.Contains(result.Changes, d.Change) { // that of p2pcheck/v1 is empty
			return fmt.Errorf("a difference of %s is %q", terminal.Line(d.Name), d.Change)
		}
	}
	return nil
}

// counted fails for a document with more values than any run has.
func counted(data []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for n := 0; ; n++ {
		switch _, err := d.ReadToken(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n > 2*MaxValues: // names are tokens, too
			return errTooMany
		}
	}
}

// mistake describes an error of the decoder without Go's types.
func mistake(err error) error {
	const no = "it is not what p2pcheck --json prints: "
	var kind *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, errTooMany):
		return fmt.Errorf("%w has: %d values, %d pairs or %d findings are too many", errTooMany, MaxValues, maxPairs, maxFindings)
	case errors.As(err, &kind) && kind.JSONPointer != "":
		return fmt.Errorf(no+"%s has a value of another kind", kind.JSONPointer)
	case errors.As(err, &kind):
		return errors.New(no + "its value is of another kind")
	case errors.As(err, &syntax):
		return fmt.Errorf(no+"byte %d: %v", syntax.ByteOffset, syntax.Err)
	}
	return errors.New(no + err.Error())
}
