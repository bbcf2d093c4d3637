// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// sample is a document of this test. The time is in RegTime.
//
// This paragraph is for Go alone.
type sample struct {
	// RegTime is the time that two MRs
	// took ([cli.Document]).
	RegTime int `json:"reg_ns"`
	// Count counts them. Each of Count and RegTime is 0 without MRs.
	Count int     `json:"count,omitempty"` // at most 2
	MRs   []int   `json:"mrs"`             // the MRs, whose names are MRs, too
	Shade shade   `json:"shade"`           // which shade it has
	Other *sample `json:"other,omitempty"` // another one
	Bare  string  `json:"bare"`
}

// likeSample has the fields of a type of another package.
type likeSample cli.Errno

// shade is one of some strings.
type shade string

// The shades.
const (
	// shadeDark is without light.
	shadeDark  shade = "dark"
	shadeLight shade = "light" // shadeLight: with light.
)

// uncommented has a constant without a comment.
type uncommented string

const noComment uncommented = "x"

// Comments become descriptions of one line, in which fields have their names in JSON.
func TestDescriptions(t *testing.T) {
	s, err := defineSample(t, reflect.TypeFor[sample]())
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		s.Description:                      "a document of this test. The time is in reg_ns.",
		s.Properties["reg_ns"].Description: "the time that two MRs took.",
		s.Properties["count"].Description:  "count counts them. Each of count and reg_ns is 0 without MRs. at most 2. Left out if 0.",
		s.Properties["mrs"].Description:    "the MRs, whose names are MRs, too",
		s.Properties["other"].Description:  "another one. Left out if there is none.",
		s.Properties["bare"].Description:   "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if s, err = defineSample(t, reflect.TypeFor[likeSample]()); err != nil || s.Properties["number"].Description == "" {
		t.Errorf("%+v, %v", s, err)
	}
}

// The values of a type are in its description, each with its comment, and each has a constant.
func TestDescriptionsOfValues(t *testing.T) {
	of := reflect.TypeFor[shade]()
	for _, c := range []struct {
		enums map[reflect.Type][]string
		want  string
		enum  int
	}{
		{nil, "one of some strings. `dark`: without light. `light`: with light. Other values are possible.", 0},
		{map[reflect.Type][]string{of: {string(shadeDark), string(shadeLight)}}, "one of some strings. `dark`: without light. `light`: with light.", 2},
	} {
		d := defining{types: Types{Enums: c.enums}, comments: &source}
		s, err := d.values(of)
		if err != nil || s.Description != c.want || len(s.Enum) != c.enum {
			t.Errorf("%+v, %v, want %q", s, err, c.want)
		}
	}
	d := defining{types: Types{Enums: map[reflect.Type][]string{of: {string(shadeDark), "grey"}}}, comments: &source}
	if _, err := d.values(of); err == nil || !strings.Contains(err.Error(), `"grey"`) {
		t.Errorf("a value without a constant: %v", err)
	}
	d = defining{comments: &source}
	if _, err := d.values(reflect.TypeOf(noComment)); err == nil || !strings.Contains(err.Error(), "no comment") {
		t.Errorf("a constant without a comment: %v", err)
	}
}

// defineSample is the schema of a struct of this test.
func defineSample(t *testing.T, of reflect.Type) (*jsonschema.Schema, error) {
	t.Helper()
	d := defining{comments: &source, defs: map[string]*jsonschema.Schema{}, names: map[reflect.Type]string{}}
	return d.object(of)
}
