// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"reflect"
	"strings"
)

var ofLines = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// Line is Escape for a text of one line: it also writes a line feed or a tab as an escape.
func Line(s string) string { return ofLines.Replace(Escape(s)) }

// Clean applies Line to the strings to which a pointer leads, through exported fields of structs, slices and
// pointers. It changes no maps, arrays and interfaces. Text from files of a machine then begins no line, and moves no
// cursor, in any format.
func Clean(pointer any) { clean(reflect.ValueOf(pointer)) }

func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			clean(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				clean(v.Index(i))
			}
		}
	case reflect.String:
		if text := v.String(); v.CanSet() && unclean(text) {
			v.SetString(Line(text))
		}
	}
}

// unclean reports a text with a character that ASCII does not show. Few texts have one, and Line then decides.
func unclean(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return true
		}
	}
	return false
}
