// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"encoding"
	"fmt"
	"go/constant"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// values is the definition of a type that is written as one of some strings: those that Types.Enums has, or any
// string where Types.Enums does not have the type, of which the description has those that are known.
func (d *defining) values(t reflect.Type) (*jsonschema.Schema, error) {
	c, err := d.comments.of(t)
	if err != nil {
		return nil, err
	}
	closed := d.types.Enums[t]
	s := &jsonschema.Schema{Type: "string", Description: c.text}
	if closed != nil {
		s = enum(closed)
		s.Description = c.text
	}
	var told []string
	for _, v := range c.values {
		name, err := written(t, v.constant)
		if err != nil {
			return nil, err
		}
		if name == "" || strings.HasSuffix(name, fmt.Sprintf("(%v)", v.constant)) {
			continue // the constant is that of an empty field, or the number of the others
		}
		if v.text == "" {
			return nil, fmt.Errorf("the constant of %v for %q has no comment", t, name)
		}
		told = append(told, name)
		s.Description += fmt.Sprintf(" `%s`: %s.", name, strings.TrimSuffix(v.text, "."))
	}
	for _, name := range closed {
		if !slices.Contains(told, name) {
			return nil, fmt.Errorf("%v has no constant for %q", t, name)
		}
	}
	if closed == nil {
		s.Description += " Other values are possible."
	}
	return s, nil
}

// written is what encoding/json writes for a constant of a type.
func written(t reflect.Type, c constant.Value) (string, error) {
	v := reflect.New(t).Elem()
	switch c.Kind() {
	case constant.String:
		return constant.StringVal(c), nil
	case constant.Int:
		n, _ := constant.Int64Val(c)
		v.SetInt(n)
	default:
		return "", fmt.Errorf("%v has a constant %v", t, c)
	}
	switch w := v.Interface().(type) {
	case encoding.TextMarshaler:
		text, err := w.MarshalText()
		return string(text), err
	case fmt.Stringer:
		return w.String(), nil
	}
	return "", fmt.Errorf("%v is written as a number", t)
}

// hasValues reports a type that is written as one of some strings.
func (d *defining) hasValues(t reflect.Type) (bool, error) {
	if d.types.Enums[t] != nil {
		return true, nil
	}
	if t.Kind() != reflect.String && !(t.Kind() == reflect.Int && t.Implements(reflect.TypeFor[encoding.TextMarshaler]())) {
		return false, nil
	}
	c, err := d.comments.of(t)
	return c != nil && len(c.values) > 0, err
}
