// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Names collects the names that encoding/json gives the fields of structs, those of embedded structs included.
// The fields of other structs inside are not among them.
func Names(values ...any) []string {
	names := map[string]bool{}
	for _, v := range values {
		collect(reflect.TypeOf(v), names)
	}
	return slices.Sorted(maps.Keys(names))
}

func collect(t reflect.Type, names map[string]bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case name != "":
			names[name] = true
		case f.Anonymous:
			collect(f.Type, names)
		default:
			names[f.Name] = true
		}
	}
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
