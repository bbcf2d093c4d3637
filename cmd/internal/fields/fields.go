// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Names collects the names that encoding/json gives the fields of values.
func Names(values ...any) []string {
	names := map[string]bool{}
	for _, v := range values {
		collect(reflect.TypeOf(v), names)
	}
	var out []string
	for name := range names {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func collect(t reflect.Type, names map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		collect(t.Elem(), names)
	case reflect.Struct:
		if writesItself(t) {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported() && !f.Anonymous:
				continue
			case name != "":
				names[name] = true
			case !f.Anonymous:
				names[f.Name] = true
			}
			collect(f.Type, names)
		}
	}
}

// writesItself reports a type whose fields JSON does not show.
func writesItself(t reflect.Type) bool {
	return slices.ContainsFunc([]string{"MarshalJSON", "MarshalText"}, func(m string) bool {
		_, ok := reflect.PointerTo(t).MethodByName(m)
		return ok
	})
}

// Missing are those names that a document mentions nowhere in code.
func Missing(document string, names []string) ([]string, error) {
	data, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	documented := map[string]bool{}
	for _, code := range regexp.MustCompile("`[^`\n]+`").FindAllString(string(data), -1) {
		for _, word := range regexp.MustCompile(`[a-z0-9_]+`).FindAllString(code, -1) {
			documented[word] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return documented[name] }), nil
}
