// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// words are the strings that a numbered type writes: of a number without a name it writes the number.
func words[T interface {
	~int
	fmt.Stringer
}]() []string {
	var out []string
	for i := T(0); !strings.HasSuffix(i.String(), fmt.Sprintf("(%d)", int(i))); i++ {
		out = append(out, i.String())
	}
	return out
}

// Enums are the numbered types of both commands' documents.
func Enums() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		reflect.TypeFor[placement.Answer](): words[placement.Answer](),
		reflect.TypeFor[placement.Memory](): words[placement.Memory](),
		reflect.TypeFor[placement.Proof]():  words[placement.Proof](),
		reflect.TypeFor[placement.Route]():  words[placement.Route](),
		reflect.TypeFor[placement.Kind]():   words[placement.Kind](),
		reflect.TypeFor[p2p.Result]():       words[p2p.Result](),
		reflect.TypeFor[chain.Outcome]():    words[chain.Outcome](),
		reflect.TypeFor[chain.Link]():       words[chain.Link](),
		reflect.TypeFor[chain.State]():      words[chain.State](),
		reflect.TypeFor[gpualloc.Kind]():    words[gpualloc.Kind](),
		reflect.TypeFor[ibvfd.Answer]():     words[ibvfd.Answer](),
		reflect.TypeFor[ibdev.LinkLayer]():  words[ibdev.LinkLayer](),
		reflect.TypeFor[trace.Mode]():       {string(trace.ModeStatic), string(trace.ModePinned), string(trace.ModeRevocable), string(trace.ModeDynamic)},
		reflect.TypeFor[trace.Call]():       {string(trace.RegDMABufMR), string(trace.RegMR), string(trace.ReregMR), string(trace.ReregDMABufMR), string(trace.Attachment), string(trace.Mapping), string(trace.Found)},
	}
}

// Named are the fields of both commands' documents that are strings in Go, and have the values of a type.
func Named() map[string]reflect.Type {
	return map[string]reflect.Type{
		"Error.cause": reflect.TypeFor[fault.Cause](), "Error.route": reflect.TypeFor[ibvfd.Route](),
		"Stage.earliest": reflect.TypeFor[fault.Stage](), "Stage.latest": reflect.TypeFor[fault.Stage](),
	}
}

// Own are the types of both commands' documents that write themselves.
func Own() map[reflect.Type]*jsonschema.Schema {
	text := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }
	count := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "integer", Minimum: new(float64)} }
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[placement.Place](): {
			Type: "object", Required: []string{"kind", "bytes", "low", "high"},
			PropertyOrder: []string{"kind", "device", "bar", "gpu", "bytes", "low", "high"},
			Properties: map[string]*jsonschema.Schema{
				"kind": enum(words[placement.Kind]()), "device": text(), "bar": count(), "gpu": {Type: "boolean"},
				"bytes": count(), "low": count(), "high": count(),
			},
		},
		reflect.TypeFor[ibdev.GID](): {
			Type: "object", Required: []string{"index", "gid", "type"}, PropertyOrder: []string{"index", "gid", "type", "netdev"},
			Properties: map[string]*jsonschema.Schema{"index": count(), "gid": text(), "type": text(), "netdev": text()},
		},
	}
}
