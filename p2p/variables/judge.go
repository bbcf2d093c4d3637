// SPDX-License-Identifier: Apache-2.0

package variables

import "slices"

// Judgement is the effect of one variable on one machine.
type Judgement struct {
	Name    string
	Library string
	Value   string // the value as it is set. It may have control characters; the texts below have none
	Present bool   // whether the variable is set: a variable that is needed and not set is judged, too
	Result  Result
	Says    string // the effect on this machine
	Change  string // what to change; "" if nothing
	Set     string // the change as an assignment, "NCCL_NET_GDR_C2C=1"; "" if it is none, such as unsetting the variable
	Source  string
}

// Judge says what each variable of env that [Known] names does on this machine, and
// which variables are needed here and not set. The order is the catalogue's.
func Judge(f Facts, env map[string]string) []Judgement {
	j := &judging{Facts: f, env: env}
	var out []Judgement
	for i := range catalogue {
		e := &catalogue[i]
		value, present := env[e.Name]
		v, ok := j.judge(e, value, present)
		if !ok {
			continue
		}
		out = append(out, Judgement{
			Name: e.Name, Library: e.Library, Value: value, Present: present,
			Result: v.result, Says: v.says, Change: v.change, Set: v.set, Source: e.Source,
		})
	}
	return out
}

// catalogue has all variables, a library after the other.
var catalogue = slices.Concat(ncclEntries, ncclDeviceEntries, rcclEntries, ucxEntries, ucxMemoryEntries, libfabricEntries,
	libfabricProviderEntries, ofiEntries, nixlEntries, mooncakeEntries, mooncakeDeviceEntries, pytorchEntries,
	nvshmemEntries, nvshmemDeviceEntries, mscclppEntries)

// Catalogue returns all variables that [Judge] judges.
func Catalogue() []Variable {
	out := make([]Variable, len(catalogue))
	for i, e := range catalogue {
		out[i] = e.Variable
	}
	return out
}

// Known reports whether the catalogue has a variable.
func Known(name string) bool {
	return slices.ContainsFunc(catalogue, func(e entry) bool { return e.Name == name })
}
