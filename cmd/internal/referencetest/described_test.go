// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// Each schema, each definition and each property has a description in one line, which names all values that
// there are.
func TestSchemasAreDescribed(t *testing.T) {
	all := readSchemas(t)
	if len(all) < 25 {
		t.Errorf("only %d schemas", len(all))
	}
	properties := 0
	for name, s := range all {
		each(s, "", func(string, *jsonschema.Schema) { properties++ })
		for _, lack := range lacks(s) {
			t.Errorf("%s: %s: write a comment in the Go source, and run `make reference`", name, lack)
		}
	}
	if properties < 500 {
		t.Errorf("only %d properties", properties)
	}
}

// A schema from which one description is taken is found out, whichever it is.
func TestAMissingDescriptionIsFound(t *testing.T) {
	for name, s := range readSchemas(t) {
		if lacks(s) != nil {
			continue // the test above says so
		}
		n := 0
		each(s, "", func(where string, p *jsonschema.Schema) {
			was := p.Description
			p.Description = ""
			if got := lacks(s); len(got) == 0 || !strings.HasPrefix(got[0], where+":") {
				t.Errorf("%s: without the description of %s: %q", name, where, got)
			}
			p.Description = was
			n++
		})
		if n < 4 {
			t.Errorf("%s: only %d descriptions", name, n)
		}
	}
}

// A value that the description does not name is found out.
func TestAMissingValueIsFound(t *testing.T) {
	s := &jsonschema.Schema{Description: "an object", Properties: map[string]*jsonschema.Schema{
		"result": {Description: "`pass` or `fail`", Enum: []any{"pass", "fail", "skip"}},
	}}
	if got := lacks(s); !slices.Equal(got, []string{"/properties/result: the description does not say what `skip` is"}) {
		t.Errorf("%q", got)
	}
}

// readSchemas reads the schemas in the repository, by their files.
func readSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	out, dir := map[string]*jsonschema.Schema{}, filepath.Join(Root(t), Schemas)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == "examples":
			return fs.SkipDir
		case filepath.Ext(name) != ".json":
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s := &jsonschema.Schema{}
		rel, _ := filepath.Rel(dir, name)
		out[rel] = s
		return json.Unmarshal(text, s)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// each visits a schema, its definitions, and all properties.
func each(s *jsonschema.Schema, where string, visit func(where string, s *jsonschema.Schema)) {
	visit(where, s)
	inside(s, where, visit)
	for _, name := range sorted(s.Defs) {
		visit(where+"/$defs/"+name, s.Defs[name])
		inside(s.Defs[name], where+"/$defs/"+name, visit)
	}
}

// inside visits the properties of a schema, those of its parts included.
func inside(s *jsonschema.Schema, where string, visit func(string, *jsonschema.Schema)) {
	for _, name := range sorted(s.Properties) {
		visit(where+"/properties/"+name, s.Properties[name])
		inside(s.Properties[name], where+"/properties/"+name, visit)
	}
	parts := append(append(slices.Clone(s.AnyOf), s.OneOf...), s.AllOf...)
	for _, part := range append(parts, s.Items, s.AdditionalProperties) {
		if part != nil {
			inside(part, where, visit)
		}
	}
}

func sorted(all map[string]*jsonschema.Schema) (names []string) {
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// lacks says what is not described.
func lacks(s *jsonschema.Schema) (out []string) {
	each(s, "", func(where string, p *jsonschema.Schema) {
		switch {
		case strings.TrimSpace(p.Description) == "":
			out = append(out, where+": no description")
		case strings.ContainsAny(p.Description, "\n\t"):
			out = append(out, where+": the description is not one line")
		}
		for _, v := range p.Enum {
			if name := fmt.Sprintf("`%v`", v); !strings.Contains(p.Description, name) {
				out = append(out, where+": the description does not say what "+name+" is")
			}
		}
	})
	return out
}
