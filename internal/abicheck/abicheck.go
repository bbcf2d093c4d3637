// SPDX-License-Identifier: Apache-2.0

package abicheck

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Struct pairs a Go structure with a C one.
type Struct struct {
	C  string // "dma_buf_sync"
	Go any    // a value of the Go structure
	// Fields names the C members in the order of the Go fields, without the
	// structs.HostLayout; "" is a Go field that only pads.
	Fields []string
	// Prefix: the Go structure is only the beginning of the C one, which grows
	// from kernel to kernel, and whose padding gets names.
	Prefix bool
}

// member is where a field lies, in bytes.
type member struct {
	name         string
	offset, size uint64
}

// layout is the Go side.
func (s Struct) layout() ([]member, uint64, error) {
	t := reflect.TypeOf(s.Go)
	var out []member
	i := 0
	for f := range t.Fields() {
		if f.Type.PkgPath() == "structs" {
			continue
		}
		if i == len(s.Fields) {
			return nil, 0, fmt.Errorf("%v has more fields than %q", t, s.Fields)
		}
		if name := s.Fields[i]; name != "" {
			out = append(out, member{name, uint64(f.Offset), uint64(f.Type.Size())})
		}
		i++
	}
	if i != len(s.Fields) {
		return nil, 0, fmt.Errorf("%v has fewer fields than %q", t, s.Fields)
	}
	return out, uint64(t.Size()), nil
}

// Number pairs a request number or constant with the C expression for it.
type Number struct {
	C  string
	Go uint64
}

// program is a C function main that prints the layout of structs and the
// numbers, for compare.
func program(structs []Struct, numbers []Number) (string, error) {
	var b strings.Builder
	b.WriteString("int main(void)\n{\n")
	for _, s := range structs {
		fields, _, err := s.layout()
		if err != nil {
			return "", err
		}
		if !s.Prefix {
			fmt.Fprintf(&b, "\tprintf(\"%s %%zu\\n\", sizeof(struct %s));\n", s.C, s.C)
		}
		for _, f := range fields {
			fmt.Fprintf(&b, "\tprintf(\"%s.%s %%zu %%zu\\n\", offsetof(struct %s, %s), sizeof(((struct %s *)0)->%s));\n",
				s.C, f.name, s.C, f.name, s.C, f.name)
		}
	}
	for _, n := range numbers {
		fmt.Fprintf(&b, "\tprintf(\"%s %%llu\\n\", (unsigned long long)(%s));\n", n.C, n.C)
	}
	b.WriteString("\treturn 0;\n}\n")
	return b.String(), nil
}

// compare checks what the program printed.
func compare(output string, structs []Struct, numbers []Number) error {
	var want strings.Builder
	for _, s := range structs {
		fields, size, err := s.layout()
		if err != nil {
			return err
		}
		if !s.Prefix {
			fmt.Fprintf(&want, "%s %d\n", s.C, size)
		}
		for _, f := range fields {
			fmt.Fprintf(&want, "%s.%s %d %d\n", s.C, f.name, f.offset, f.size)
		}
	}
	for _, n := range numbers {
		fmt.Fprintf(&want, "%s %d\n", n.C, n.Go)
	}
	c, g := strings.Split(output, "\n"), strings.Split(want.String(), "\n")
	var errs []error
	for i := range max(len(c), len(g)) {
		if i >= len(c) || i >= len(g) {
			errs = append(errs, fmt.Errorf("the C program printed %d lines, Go expects %d", len(c), len(g)))
			break
		}
		if c[i] != g[i] {
			errs = append(errs, fmt.Errorf("in C %q, in Go %q", c[i], g[i]))
		}
	}
	return errors.Join(errs...)
}

// BTF checks structs against type information of a kernel or module. Every C
// member must have a Go field, except flexible arrays at the end.
func BTF(spec *btf.Spec, structs ...Struct) error {
	var errs []error
	for _, s := range structs {
		if err := s.compareBTF(spec); err != nil {
			errs = append(errs, fmt.Errorf("struct %s: %w", s.C, err))
		}
	}
	return errors.Join(errs...)
}

func (s Struct) compareBTF(spec *btf.Spec) error {
	fields, size, err := s.layout()
	if err != nil {
		return err
	}
	var c *btf.Struct
	if err := spec.TypeByName(s.C, &c); err != nil {
		return err
	}
	var errs []error
	if uint64(c.Size) != size && !(s.Prefix && uint64(c.Size) > size) {
		errs = append(errs, fmt.Errorf("the kernel's has %d bytes, Go's %d", c.Size, size))
	}
	seen := map[string]bool{}
	for _, m := range flatten(c.Members, 0, false) {
		i := slices.IndexFunc(fields, func(f member) bool { return f.name == m.name })
		switch {
		case i >= 0:
			seen[m.name] = true
			if fields[i].offset != m.offset || fields[i].size != m.size {
				errs = append(errs, fmt.Errorf("%s is %d bytes at %d, in Go %d at %d", m.name, m.size, m.offset, fields[i].size, fields[i].offset))
			}
		case m.size == 0 || m.alternative || s.Prefix:
		default:
			errs = append(errs, fmt.Errorf("member %s is missing in Go", m.name))
		}
	}
	for _, f := range fields {
		if !seen[f.name] {
			errs = append(errs, fmt.Errorf("the kernel has no member %s", f.name))
		}
	}
	return errors.Join(errs...)
}

// cMember is a member of a C structure, or of an anonymous one inside it.
type cMember struct {
	member
	alternative bool // of a union: Go need not have it
}

func flatten(members []btf.Member, base uint64, alternative bool) []cMember {
	var out []cMember
	for _, m := range members {
		at := base + uint64(m.Offset.Bytes())
		switch t := m.Type.(type) {
		case *btf.Union:
			if m.Name == "" {
				out = append(out, flatten(t.Members, at, true)...)
				continue
			}
		case *btf.Struct:
			if m.Name == "" {
				out = append(out, flatten(t.Members, at, alternative)...)
				continue
			}
		}
		n, err := btf.Sizeof(m.Type)
		if err != nil {
			n = -1 // no type has this size: it will not match
		}
		out = append(out, cMember{member{m.Name, at, uint64(n)}, alternative})
	}
	return out
}
