// SPDX-License-Identifier: Apache-2.0

package libcheck

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/variables"
)

// judged is one environment, with the judgements of its variables.
type judged struct {
	environment
	all []variables.Judgement
}

// judge judges the variables of all environments, once for all checks.
func judge(l *check.Look) []judged {
	return check.Once(l, "judged variables", func() []judged {
		var out []judged
		f := facts(l)
		for _, e := range environments(l) {
			j := judged{environment: e}
			if e.unread.Err == nil {
				j.all = variables.Judge(f, e.vars)
			}
			out = append(out, j)
		}
		return out
	})
}

// levels are NCCL's variables that limit the distance for GPUDirect RDMA, which LIB-NCCL-LEVEL checks.
var levels = []string{"NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_C2C"}

// libraries has, by the ID of a check, the libraries whose variables the check judges.
var libraries = map[string][]string{
	"LIB-UCX-ENV":      {"UCX"},
	"LIB-FABRIC-ENV":   {"libfabric", "aws-ofi-nccl"},
	"LIB-NIXL-ENV":     {"NIXL"},
	"LIB-MOONCAKE-ENV": {"Mooncake"},
	"LIB-PYTORCH-ENV":  {"PyTorch"},
	"LIB-NVSHMEM-ENV":  {"NVSHMEM"},
	"LIB-MSCCLPP-ENV":  {"MSCCL++"},
}

// Variables returns the variables that the check with this ID judges; none if it judges no variables.
func Variables(id string) []variables.Variable {
	var out []variables.Variable
	for _, v := range variables.Catalogue() {
		level := slices.Contains(levels, v.Name)
		switch {
		case id == "LIB-NCCL-ENV" && v.Library == "NCCL" && !level,
			id == "LIB-NCCL-LEVEL" && level,
			slices.Contains(libraries[id], v.Library):
			out = append(out, v)
		}
	}
	return out
}

// variablesOf checks the variables of the check's libraries.
func variablesOf(l *check.Look) {
	own := libraries[l.Check.ID]
	told(l, func(j variables.Judgement) bool { return slices.Contains(own, j.Library) }, func(name string) bool {
		return slices.ContainsFunc(variables.Catalogue(), func(v variables.Variable) bool { return v.Name == name && slices.Contains(own, v.Library) })
	})
}

func ncclEnvironment(l *check.Look) {
	told(l, func(j variables.Judgement) bool { return j.Library == "NCCL" && !slices.Contains(levels, j.Name) }, func(name string) bool {
		return strings.HasPrefix(name, "NCCL_") && variables.Known(name) && !slices.Contains(levels, name)
	})
}

// ncclLevel judges the variables of levels on a machine with a direct pair on PCI. On other machines they have no
// effect, and the check is skipped.
func ncclLevel(l *check.Look) {
	direct := check.Select(l.Pairs, func(p p2p.Pair) bool {
		return !p.NIC.Software && p.Letters.NCCL != "" && p.Verdict.Outcome() == chain.Direct
	})
	if len(direct) == 0 && (len(l.Subject.Containers) == 0 || NotJudged(l.Subject.GPUs, l.Subject.NICs) == "") {
		l.Skip("no direct pair on PCI")
		return
	}
	told(l, func(j variables.Judgement) bool { return slices.Contains(levels, j.Name) }, func(name string) bool { return slices.Contains(levels, name) })
}

// NotJudged is the reason why a machine with these devices cannot judge the variables of a container, or ""
// if it can: the effect of a variable depends on the GPUs and the NICs.
func NotJudged(gpus []drivers.GPU, nics []drivers.NIC) string {
	switch {
	case !slices.ContainsFunc(gpus, func(g drivers.GPU) bool { return g.Exporter.Class != drivers.ClassSystem }):
		return "no GPU with memory of its own was found"
	case len(nics) == 0:
		return "no RDMA device was found"
	}
	return ""
}

// told adds findings for the judgements about which about returns true. has returns true for the names of the
// check's variables: told reports those whose values a container's specification does not have.
func told(l *check.Look, about func(variables.Judgement) bool, has func(string) bool) {
	if why := NotJudged(l.Subject.GPUs, l.Subject.NICs); why != "" && len(l.Subject.Containers) > 0 {
		for _, e := range environments(l) {
			l.Unknown("", []string{e.unread.Where}, "%s%s: not judged: %s", e.whose, e.set(has), why).SetAside()
		}
		return
	}
	for _, j := range judge(l) {
		if j.unread.Err != nil {
			l.Unread("", j.unread).SetAside()
			continue
		}
		var set []string
		said := false
		for _, v := range j.all {
			if !about(v) {
				continue
			}
			if v.Present {
				set = append(set, v.Name+"="+shown(v.Value))
			}
			said = say(l, j.environment, v) || said
		}
		for _, name := range j.elsewhere {
			if name == envFrom || has(name) {
				l.Unknown("", []string{j.unread.Where}, "%s%s: the value is not in the specification", j.whose, name).SetAside()
				said = true
			}
		}
		switch {
		case said:
		case len(set) > 0:
			l.Pass("", []string{j.unread.Where}, "%s%s", j.whose, strings.Join(set, ", "))
		default:
			l.Pass("", []string{j.unread.Where}, "%snone is set", j.whose)
		}
	}
}

// say adds a finding for a judgement that is not a pass, and returns true for such a judgement.
func say(l *check.Look, e environment, j variables.Judgement) bool {
	name := j.Name + " is not set"
	if j.Present {
		name = j.Name + "=" + shown(j.Value)
	}
	at := []string{e.unread.Where}
	var f *check.Finding
	switch j.Result {
	case variables.ResultPass:
		return false
	case variables.ResultWarn:
		f = l.Warn("", at, "%s%s: %s", e.whose, name, j.Says)
	case variables.ResultFail:
		f = l.Say(l.Check.Worst, "", at, "%s%s: %s", e.whose, name, j.Says)
	default:
		f = l.Unknown("", at, "%s%s: %s", e.whose, name, j.Says).SetAside()
	}
	if j.Change != "" && f.Result != p2p.ResultUnknown {
		f.Fix(j.Change, j.Set, "")
	}
	return true
}

// shown returns a value for a message: at most 60 characters of it, without control characters.
func shown(value string) string {
	const most = 60
	if r := []rune(value); len(r) > most {
		value = string(r[:most]) + "…"
	}
	if q := strconv.Quote(value); q != `"`+value+`"` {
		return q
	}
	return value
}
