// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/trace"
)

// docs/json.md names every field that --json can print.
func TestEveryFieldIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, code := range regexp.MustCompile("`[^`\n]+`").FindAllString(string(data), -1) {
		for _, word := range regexp.MustCompile(`[a-z0-9_]+`).FindAllString(code, -1) {
			documented[word] = true
		}
	}
	fields := map[string]bool{}
	for _, v := range []any{cli.Document{}, cli.Error{}, devicesResult{}, registerResult{}, verifyResult{}, report{}, inspectResult{}, tracing{}, trace.Event{}, traceResult{}} {
		jsonFields(reflect.TypeOf(v), fields)
	}
	if len(fields) < 50 {
		t.Errorf("only %d fields were found", len(fields))
	}
	for name := range fields {
		if !documented[name] {
			t.Errorf("%q is not in docs/json.md", name)
		}
	}
}

// jsonFields collects the names that encoding/json gives t's fields.
func jsonFields(t reflect.Type, names map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		jsonFields(t.Elem(), names)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			// A type that writes itself is not looked into.
			base := f.Type
			if base.Kind() == reflect.Pointer {
				base = base.Elem()
			}
			own := slices.ContainsFunc([]string{"MarshalJSON", "MarshalText"}, func(m string) bool {
				_, ok := reflect.PointerTo(base).MethodByName(m)
				return ok
			})
			switch {
			case name == "-" || !f.IsExported() && !f.Anonymous:
				continue
			case name != "":
				names[name] = true
			case !f.Anonymous:
				names[f.Name] = true
			}
			if !own {
				jsonFields(f.Type, names)
			}
		}
	}
}
