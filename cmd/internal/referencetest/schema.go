// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schemas is the directory of the JSON Schemas.
const Schemas = "docs/reference/schema"

// draft is the version of JSON Schema that they are written in.
const draft = "https://json-schema.org/draft/2020-12/schema"

// Of describes the documents of one kind.
type Of struct {
	Name  string // of the file, without ".json": "p2pcheck/check"
	Title string
	Type  any // a value of the document's type
	// Result are values of the types that the field Field can have, whose own type in Go is any. It can be
	// null, too.
	Field  string
	Result []any
	// Fixed are the values of fields: "schema", "command".
	Fixed map[string]any
}

// Types are the schemas of types that encoding/json does not write as their fields.
type Types struct {
	// Enums are types that are written as one of some strings.
	Enums map[reflect.Type][]string
	// Own are types that write themselves.
	Own map[reflect.Type]*jsonschema.Schema
	// Words are the strings that a field can have: "Finding.result". The field's comment says what they mean.
	Words map[string][]string
	// Named are fields that are strings in Go, and have the values of a type: "Pair.outcome".
	Named map[string]reflect.Type
	// Nullable are slices that may be null: "Buffer.attached".
	Nullable []string
}

// Schema is the JSON Schema of documents, from the types that the program writes.
func (of Of) Schema(t *testing.T, types Types) []byte {
	t.Helper()
	d := defining{types: types, comments: &source, defs: map[string]*jsonschema.Schema{}, names: map[reflect.Type]string{}}
	s, err := d.object(reflect.TypeOf(of.Type))
	if err != nil {
		t.Fatalf("%s: %v", of.Name, err)
	}
	if of.Field != "" {
		p := d.alternatives(t, of.Result)
		p.Description = s.Properties[of.Field].Description
		s.Properties[of.Field] = p
		for _, r := range of.Result {
			c, err := d.comments.of(reflect.TypeOf(r))
			if err != nil {
				t.Fatal(err)
			}
			s.Description += fmt.Sprintf(" `%s`: %s", of.Field, c.text)
		}
	}
	for name, value := range of.Fixed {
		p := s.Properties[name]
		if p == nil {
			t.Fatalf("%s: no field %s", of.Name, name)
		}
		s.Properties[name] = &jsonschema.Schema{Const: &value, Description: p.Description}
	}
	s.Schema, s.ID, s.Title, s.Defs = draft, ID(of.Name), of.Title, d.defs
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // descriptions have "->"
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ID is the identifier of a schema: a name, and no address to load it from.
func ID(name string) string { return "urn:gpurdma:schema:" + strings.ReplaceAll(name, "/", ":") }

// source has the comments that the tests of a package need.
var source comments

// defining collects the schemas of the types that a document is made of.
type defining struct {
	types    Types
	comments *comments
	defs     map[string]*jsonschema.Schema
	names    map[reflect.Type]string
}

func (d *defining) alternatives(t *testing.T, values []any) *jsonschema.Schema {
	t.Helper()
	any := []*jsonschema.Schema{{Type: "null"}} // no values: always null
	for _, v := range values {
		s, err := d.of(reflect.TypeOf(v), "")
		if err != nil {
			t.Fatal(err)
		}
		any = append(any, s)
	}
	return &jsonschema.Schema{AnyOf: any}
}

// of is the schema of a type, by reference if it is a struct, or has values with names.
func (d *defining) of(t reflect.Type, field string) (*jsonschema.Schema, error) {
	if d.types.Own[t] != nil {
		return d.reference(t)
	}
	if yes, err := d.hasValues(t); yes || err != nil {
		return d.reference(t)
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}, nil
	case t.Kind() == reflect.Pointer:
		s, err := d.of(t.Elem(), field)
		if err != nil {
			return nil, err
		}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}, nil
	case t.Implements(reflect.TypeFor[json.Marshaler]()):
		return nil, fmt.Errorf("%v writes itself: add it to Own", t)
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return &jsonschema.Schema{Type: "string"}, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.reference(t)
	case reflect.Slice, reflect.Array:
		items, err := d.of(t.Elem(), field)
		s := &jsonschema.Schema{Type: "array", Items: items}
		if slices.Contains(d.types.Nullable, field) {
			s.Type, s.Types = "", []string{"array", "null"}
		}
		return s, err
	case reflect.Map:
		values, err := d.of(t.Elem(), field)
		return &jsonschema.Schema{Type: "object", AdditionalProperties: values}, err
	case reflect.Interface:
		return &jsonschema.Schema{}, nil
	}
	return jsonschema.ForType(t, nil)
}

func enum(values []string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// reference is a reference to the definition of a type.
func (d *defining) reference(t reflect.Type) (*jsonschema.Schema, error) {
	name, ok := d.names[t]
	if !ok {
		name = strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if _, taken := d.defs[name]; taken {
			pkg := path.Base(t.PkgPath())
			name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
		}
		d.names[t] = name
		d.defs[name] = &jsonschema.Schema{} // the name is taken
		s, err := d.definition(t)
		if err != nil {
			return nil, err
		}
		d.defs[name] = s
	}
	return &jsonschema.Schema{Ref: "#/$defs/" + name}, nil
}

func (d *defining) definition(t reflect.Type) (*jsonschema.Schema, error) {
	switch {
	case d.types.Own[t] != nil:
		return d.own(t)
	case t.Kind() == reflect.Struct:
		return d.object(t)
	}
	return d.values(t)
}

// own is the schema of a type that writes itself, with the comments of its fields. A field that JSON does not
// name has its name in Go.
func (d *defining) own(t reflect.Type) (*jsonschema.Schema, error) {
	c, err := d.comments.of(t)
	if err != nil {
		return nil, err
	}
	s := d.types.Own[t].CloneSchemas()
	s.Description = c.text
	for name, p := range s.Properties {
		f, ok := t.FieldByNameFunc(func(field string) bool {
			f, _ := t.FieldByName(field)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return tag == name || tag == "-" && strings.EqualFold(field, name)
		})
		if !ok {
			return nil, fmt.Errorf("%v has no field %s", t, name)
		}
		if yes, err := d.hasValues(f.Type); err != nil {
			return nil, err
		} else if yes {
			if p, err = d.reference(f.Type); err != nil {
				return nil, err
			}
		}
		p.Description = c.fields[f.Name]
		s.Properties[name] = p
	}
	return s, nil
}

// object is the schema of a struct. A field that is added later is allowed: readers ignore what they do not know.
func (d *defining) object(t reflect.Type) (*jsonschema.Schema, error) {
	c, err := d.comments.of(t)
	if err != nil {
		return nil, err
	}
	s := &jsonschema.Schema{Type: "object", Description: c.text, Properties: map[string]*jsonschema.Schema{}}
	return s, d.fields(t, s)
}

func (d *defining) fields(t reflect.Type, s *jsonschema.Schema) error {
	c, err := d.comments.of(t)
	if err != nil {
		return err
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous && name == "" {
			in := f.Type
			if in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			if err := d.fields(in, s); err != nil {
				return err
			}
			continue
		}
		if name == "" {
			name = f.Name
		}
		omit := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		ft := f.Type
		if omit && ft.Kind() == reflect.Pointer { // it is left out, and never null
			ft = ft.Elem()
		}
		field := t.Name() + "." + name
		p, err := d.of(ft, field)
		if err != nil {
			return fmt.Errorf("%s of %v: %w", name, t, err)
		}
		if values := d.types.Words[field]; values != nil {
			p = enum(values)
		} else if named := d.types.Named[field]; named != nil {
			if p, err = d.reference(named); err != nil {
				return err
			}
		}
		p.Description = c.fields[f.Name]
		if omit && p.Description != "" {
			p.Description = strings.TrimSuffix(p.Description, ".") + ". " + leftOut(f.Type)
		}
		if _, there := s.Properties[name]; !there {
			s.PropertyOrder = append(s.PropertyOrder, name)
		}
		s.Properties[name] = p
		if !omit && !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
	return nil
}

// leftOut says when encoding/json leaves out a field that it may leave out.
func leftOut(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return "Left out if empty."
	case reflect.Bool:
		return "Left out if false."
	case reflect.Pointer, reflect.Struct:
		return "Left out if there is none."
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "Left out if there is none."
	}
	return "Left out if 0."
}

// Checker holds documents against the schemas in the repository. Tests that run at the same time may share one.
type Checker struct {
	mu       sync.Mutex
	resolved map[string]*jsonschema.Resolved
}

// Check validates a document against the schema of this name.
func (c *Checker) Check(name string, document []byte) error {
	schema, err := c.schema(name)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		return err
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c *Checker) schema(name string) (*jsonschema.Resolved, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.resolved[name]; r != nil {
		return r, nil
	}
	dir, err := root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, Schemas, name+".json"))
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return nil, err
	}
	if c.resolved == nil {
		c.resolved = map[string]*jsonschema.Resolved{}
	}
	c.resolved[name] = r
	return r, nil
}
