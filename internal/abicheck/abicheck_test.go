// SPDX-License-Identifier: Apache-2.0

package abicheck

import (
	"strings"
	"structs"
	"testing"

	"github.com/cilium/ebpf/btf"
)

type sample struct {
	_    structs.HostLayout
	ID   uint32
	Pad  uint32
	Size uint64
}

var good = Struct{C: "sample", Go: sample{}, Fields: []string{"id", "", "size"}}

func TestCompare(t *testing.T) {
	numbers := []Number{{"NUMBER", 7}}
	const output = "sample 16\nsample.id 0 4\nsample.size 8 8\nNUMBER 7\n"
	if err := compare(output, []Struct{good}, numbers); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{
		strings.Replace(output, "16", "24", 1),
		strings.Replace(output, "size 8", "size 4", 1),
		strings.Replace(output, "NUMBER 7", "NUMBER 8", 1),
		"",
		output + "more 1\n",
	} {
		if compare(wrong, []Struct{good}, numbers) == nil {
			t.Errorf("no error for %q", wrong)
		}
	}
	source, err := program([]Struct{good}, numbers)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sizeof(struct sample)", "offsetof(struct sample, size)", "(NUMBER)"} {
		if !strings.Contains(source, want) {
			t.Errorf("the program lacks %q:\n%s", want, source)
		}
	}
}

func TestFieldsMustMatch(t *testing.T) {
	for _, fields := range [][]string{{"id"}, {"id", "", "size", "more"}} {
		s := Struct{C: "sample", Go: sample{}, Fields: fields}
		if _, err := program([]Struct{s}, nil); err == nil {
			t.Errorf("program accepts the fields %q", fields)
		}
		if compare("", []Struct{s}, nil) == nil {
			t.Errorf("compare accepts the fields %q", fields)
		}
	}
}

// A C structure that goes on, and one with an anonymous union.
func TestPrefixAndUnions(t *testing.T) {
	u32 := &btf.Int{Name: "u32", Size: 4}
	u64 := &btf.Int{Name: "u64", Size: 8}
	choice := &btf.Union{Size: 8, Members: []btf.Member{
		{Name: "raw", Type: &btf.Array{Index: u32, Type: u32, Nelems: 2}},
		{Type: &btf.Struct{Size: 8, Members: []btf.Member{{Name: "size", Type: u64}}}},
	}}
	spec := specOf(t, &btf.Struct{Name: "sample", Size: 24, Members: []btf.Member{
		{Name: "id", Type: u32}, {Name: "named", Type: u32, Offset: 32},
		{Type: choice, Offset: 64}, {Name: "more", Type: u64, Offset: 128},
	}})
	prefix := good
	prefix.Prefix = true
	if err := BTF(spec, prefix); err != nil {
		t.Error(err)
	}
	unknown := Struct{C: "sample", Go: sample{}, Fields: []string{"id", "", "length"}, Prefix: true}
	for name, s := range map[string]Struct{"not marked as prefix": good, "a field that C lacks": unknown} {
		if BTF(spec, s) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	source, err := program([]Struct{prefix}, nil)
	if err != nil || strings.Contains(source, "sizeof(struct sample))") {
		t.Errorf("the program compares the whole size: %v\n%s", err, source)
	}
	if err := compare("sample.id 0 4\nsample.size 8 8\n", []Struct{prefix}, nil); err != nil {
		t.Error(err)
	}
}

// kernel builds BTF of struct sample in which id is at offset, and there is
// one more member if extra is set.
func kernel(t *testing.T, offset uint32, extra bool) *btf.Spec {
	t.Helper()
	u32 := &btf.Int{Name: "u32", Size: 4}
	u64 := &btf.Int{Name: "u64", Size: 8}
	c := &btf.Struct{Name: "sample", Size: 16, Members: []btf.Member{
		{Name: "id", Type: u32, Offset: btf.Bits(offset * 8)},
		{Name: "size", Type: u64, Offset: 64},
		{Name: "list", Type: &btf.Array{Index: u32, Type: u64}, Offset: 128},
	}}
	if extra {
		c.Members = append(c.Members, btf.Member{Name: "extra", Type: u32, Offset: 32})
	}
	return specOf(t, c)
}

// specOf is BTF that has one structure.
func specOf(t *testing.T, c *btf.Struct) *btf.Spec {
	t.Helper()
	b, err := btf.NewBuilder([]btf.Type{c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestBTF(t *testing.T) {
	if err := BTF(kernel(t, 0, false), good); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"moved member":   BTF(kernel(t, 4, false), good),
		"missing member": BTF(kernel(t, 0, true), good),
		"missing struct": BTF(kernel(t, 0, false), Struct{C: "other", Go: sample{}, Fields: good.Fields}),
		"other size":     BTF(kernel(t, 0, false), Struct{C: "sample", Go: struct{ ID uint32 }{}, Fields: []string{"id"}}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// What headers have is a whole word of them.
func TestHave(t *testing.T) {
	h := Headers{Files: []string{"string.h"}, Package: "libc6-dev"}
	h.Compile(t, "int main(void) { return 0; }\n")
	for name, want := range map[string]bool{"memcpy": true, "memcp": false, "no_such_function": false} {
		if h.Have(t, name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	if (Headers{Files: []string{"no/such.h"}}).Have(t, "memcpy") {
		t.Error("headers that are not there have something")
	}
}
