// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Agrees tests that encoding/json writes a document as its schema says: one whose fields are all set, one
// without anything that can be left out, and no field that the schema does not name.
func (of Of) Agrees(t *testing.T, types Types) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(of.Schema(t, types), &s); err != nil {
		t.Fatal(err)
	}
	closed(&s)
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	results := of.Result
	if len(results) == 0 {
		results = []any{nil}
	}
	for _, result := range results {
		for _, all := range []bool{true, false} {
			f := filling{types: types, all: all}
			document := f.object(reflect.TypeOf(of.Type))
			if result != nil {
				document[of.Field] = f.value(reflect.TypeOf(result), "")
			}
			for name, value := range of.Fixed {
				document[name] = value
			}
			if err := errors.Join(f.err, agree(r, document)); err != nil {
				t.Errorf("%s, all fields: %v: %v", of.Name, all, err)
			}
		}
	}
}

// agree validates what encoding/json writes.
func agree(r *jsonschema.Resolved, document any) error {
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	if err := r.Validate(value); err != nil {
		return fmt.Errorf("%w in %.3000s", err, text)
	}
	return nil
}

// closed lets the objects of a schema have no fields but those that it names.
func closed(s *jsonschema.Schema) {
	if s.Type == "object" && s.AdditionalProperties == nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, p := range s.Properties {
		closed(p)
	}
	for _, d := range s.Defs {
		closed(d)
	}
	for _, a := range s.AnyOf {
		closed(a)
	}
	if s.Items != nil {
		closed(s.Items)
	}
}

// filling makes values of types.
type filling struct {
	types Types
	all   bool // fields that can be left out are set, and lists have an element
	err   error
}

// object is what encoding/json writes for a struct of this type, field by field, so that a field can have a
// value that its type does not know to be wrong.
func (f *filling) object(t reflect.Type) map[string]any {
	v := reflect.New(t).Elem()
	f.set(v, t.Name())
	text, err := json.Marshal(v.Interface())
	out := map[string]any{}
	f.err = errors.Join(f.err, err, json.Unmarshal(text, &out))
	return out
}

func (f *filling) value(t reflect.Type, field string) any {
	v := reflect.New(t).Elem()
	f.set(v, field)
	return v.Interface()
}

func (f *filling) set(v reflect.Value, field string) {
	if !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if f.all {
			v.Set(reflect.New(v.Type().Elem()))
			f.set(v.Elem(), field)
		}
	case reflect.Slice:
		n := 0
		if f.all {
			n = 1
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.set(v.Index(i), field)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		if f.all {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.set(key, field)
			f.set(value, field)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1e9, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			sub := v.Type().Field(i)
			if sub.Anonymous && sub.Type.Kind() == reflect.Pointer && sub.IsExported() { // its fields are the document's
				v.Field(i).Set(reflect.New(sub.Type.Elem()))
				f.set(v.Field(i).Elem(), field)
				continue
			}
			name, options, _ := strings.Cut(sub.Tag.Get("json"), ",")
			if !f.all && strings.Contains(options, "omit") {
				continue
			}
			f.set(v.Field(i), v.Type().Name()+"."+name)
		}
	case reflect.String:
		if values := f.types.Words[field]; values != nil {
			v.SetString(values[0])
		} else if values := f.types.Enums[f.types.Named[field]]; values != nil {
			v.SetString(values[0])
		} else if values := f.types.Enums[v.Type()]; values != nil {
			v.SetString(values[0])
		} else {
			v.SetString("text")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		v.SetUint(1)
	}
}
