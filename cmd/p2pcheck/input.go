// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// standard is the name of standard input and output.
const standard = "-"

// openInput opens a file, or the standard input for "-", to be read once.
func openInput(name string) (*os.File, error) {
	if name == standard {
		return os.Stdin, nil
	}
	return os.Open(name)
}

// resultLimit is larger than the output of any run.
const resultLimit = 256 << 20

// badFile is the error of a file with other contents than its flag needs.
type badFile struct{ error }

func (b badFile) Unwrap() error { return b.error }

// readResult reads what check printed with --json, of this version or of the one before: the pairs
// of that one have no links.
func readResult(name string) (result.Run, error) {
	r, err := resultOf(name)
	if err != nil {
		return r, badFile{err}
	}
	return r, nil
}

func resultOf(name string) (result.Run, error) {
	var r result.Run
	f, err := openInput(name)
	if err != nil {
		return r, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, resultLimit))
	if err != nil {
		return r, err
	}
	var d struct {
		Schema  string
		Command string
		Status  int `json:"exit_status"`
		Result  *result.Run
		Errors  []cli.Error
	}
	err = json.Unmarshal(data, &d) // one document, and nothing behind it
	switch {
	case len(data) == 0:
		return r, fmt.Errorf("%s is empty", name)
	case err != nil:
		return r, fmt.Errorf("%s is not what %s --json prints: %s", name, program, jsonMistake(err))
	case d.Schema != result.Schema && d.Schema != result.SchemaV1 || d.Command != "check":
		return r, fmt.Errorf("%s is not what %s --json prints: schema %q, command %q", name, program, d.Schema, d.Command)
	case d.Result == nil:
		return r, fmt.Errorf("%s is of a run that found nothing", name)
	}
	for i, p := range d.Result.Pairs {
		if d.Schema == result.SchemaV1 {
			d.Result.Pairs[i].Predicted = p.Outcome
		}
		if !result.IsOutcome(p.Outcome) {
			return r, fmt.Errorf("%s: a pair with the outcome %q", name, p.Outcome)
		}
		if d.Schema != result.SchemaV1 && len(p.Links) == 0 {
			return r, fmt.Errorf("%s: %s -> %s has no links, which a pair of %s has", name, p.GPU, p.NIC, d.Schema)
		}
		if p.Proof != nil && !result.IsOutcome(p.Proof.Outcome) {
			return r, fmt.Errorf("%s: a proof with the outcome %q", name, p.Proof.Outcome)
		}
	}
	d.Result.Schema, d.Result.Ran = d.Schema, d.Status
	for _, e := range d.Errors {
		d.Result.Said = append(d.Result.Said, e.Message)
	}
	return *d.Result, nil
}

// jsonMistake describes an error of encoding/json without Go's types.
func jsonMistake(err error) string {
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Sprintf("%s has a value of another kind (%s)", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return "its value is of another kind (" + kind.Value + ")"
	}
	return err.Error()
}

// openRegular is openInput, and fails for a directory.
func openRegular(name string) (*os.File, error) {
	f, err := openInput(name)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		_ = f.Close()
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	return f, nil
}
