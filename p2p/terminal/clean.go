// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"reflect"
	"strings"
)

// Line is Escape for a text of one line: a line feed or a tab is written as an escape, too.
func Line(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Escape(s))
}

// Clean makes lines of all texts that a pointer leads to: of structs, slices, maps' values and pointers. What
// comes from files of a machine then neither begins lines of its own nor moves a cursor, in whatever format.
func Clean(pointer any) { clean(reflect.ValueOf(pointer)) }

func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			clean(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k == reflect.String || k == reflect.Struct || k == reflect.Pointer || k == reflect.Slice || k == reflect.Map {
			for i := range v.Len() {
				clean(v.Index(i))
			}
		}
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.String {
			for _, key := range v.MapKeys() {
				if text := v.MapIndex(key).String(); unclean(text) {
					v.SetMapIndex(key, reflect.ValueOf(Line(text)).Convert(v.Type().Elem()))
				}
			}
		}
	case reflect.String:
		if text := v.String(); v.CanSet() && unclean(text) {
			v.SetString(Line(text))
		}
	}
}

// unclean reports a text with a character that is no letter of ASCII's visible ones: few texts have any.
func unclean(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return true
		}
	}
	return false
}
