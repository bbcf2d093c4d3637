// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// Variable is an environment variable that changes the path between a GPU and a NIC.
type Variable struct {
	Name    string
	Library string // of Facts.Versions
	Since   string // the version that introduced it; "" if it is older than what was looked at
	Default string
	Effect  string
	Source  string // the source file, document or issue of the statements
}

// entry is a variable with its rules.
type entry struct {
	Variable

	vendors []Vendor // the GPUs that it concerns; none are all
	driver  string   // the NICs' driver that it concerns; "" is any
	alone   bool     // it has an effect without a GPU or a NIC, too

	set   func(j *judging, value string) verdict
	unset func(j *judging) verdict // nil: it is never needed
}

// Result is how a value fits the machine.
type Result int

// The results. The zero value is no pass.
const (
	ResultUnknown Result = iota // what decides was not read
	ResultPass                  // the value fits, or changes nothing here
	ResultWarn                  // the value takes a direct path away, or makes it slower
	ResultFail                  // with the value the library ends in an error
)

var resultNames = []string{"unknown", "pass", "warn", "fail"}

// String names the result.
func (r Result) String() string { return name(resultNames, int(r)) }

// verdict is a rule's answer. The zero value is none.
type verdict struct {
	result Result
	says   string
	change string
	set    string
}

func pass(format string, args ...any) verdict {
	return verdict{result: ResultPass, says: fmt.Sprintf(format, args...)}
}

func open(format string, args ...any) verdict {
	return verdict{result: ResultUnknown, says: fmt.Sprintf(format, args...)}
}

func warn(format string, args ...any) verdict {
	return verdict{result: ResultWarn, says: fmt.Sprintf(format, args...)}
}

func fail(format string, args ...any) verdict {
	return verdict{result: ResultFail, says: fmt.Sprintf(format, args...)}
}

// so adds what to change.
func (v verdict) so(change, set string) verdict {
	v.change, v.set = change, set
	return v
}

// away adds the usual change to a verdict that asks for one.
func (v verdict) away() verdict {
	if v.result == ResultWarn || v.result == ResultFail {
		return v.so("take the variable away", "")
	}
	return v
}

// judging is one run of Judge.
type judging struct {
	Facts
	env map[string]string
}

// judge applies a rule, if the machine has what the variable is about.
func (j *judging) judge(e *entry, value string, present bool) (verdict, bool) {
	if why := j.without(e); why != "" {
		return pass("%s", why), present
	}
	if present {
		return e.set(j, value), true
	}
	if e.unset == nil {
		return verdict{}, false
	}
	v := e.unset(j)
	return v, v.result == ResultWarn || v.result == ResultFail
}

// without says what the machine lacks for a variable to have an effect.
func (j *judging) without(e *entry) string {
	switch hardware := slices.ContainsFunc(j.NICs, func(n NIC) bool { return !n.Software }); {
	case e.alone:
		return ""
	case len(j.GPUs) == 0:
		return "changes no path between a GPU and a NIC: this machine has no GPU"
	case !hardware:
		return "changes no path between a GPU and a NIC: this machine has no RDMA NIC"
	}
	if !slices.ContainsFunc(j.GPUs, func(g GPU) bool { return g.of(e.vendors) }) {
		return "has no effect here: this machine has no GPU of " + words(e.vendors)
	}
	if e.driver != "" && !slices.ContainsFunc(j.NICs, func(n NIC) bool { return n.Driver == e.driver }) {
		return "has no effect here: no NIC of this machine is driven by " + e.driver
	}
	return ""
}

func words(vendors []Vendor) string {
	var out []string
	for _, v := range vendors {
		out = append(out, v.String())
	}
	return strings.Join(out, " or ")
}

// uses reports a program that has set a variable of a library, and so uses it.
func (j *judging) uses(prefixes ...string) bool {
	for name := range j.env {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return true
		}
	}
	return false
}

// isSet reports a variable that is set, to an empty text, too.
func (j *judging) isSet(name string) bool { _, ok := j.env[name]; return ok }

// direct reports whether some GPU of the vendors has a direct NIC.
func (j *judging) direct(vendors ...Vendor) placement.Answer {
	return placement.Any(j.GPUs, func(g GPU) placement.Answer {
		switch {
		case !g.of(vendors) || g.Nearest == NoNIC:
			return placement.No
		case g.Nearest.known():
			return placement.Yes
		}
		return placement.AnswerUnknown
	})
}

// costs is the verdict on a value that takes GPUDirect RDMA away; does is "NCCL copies".
func (j *judging) costs(does string, vendors ...Vendor) verdict {
	switch j.direct(vendors...) {
	case placement.Yes:
		return warn("%s through system memory, though this machine has direct pairs", does).away()
	case placement.No:
		return pass("%s through system memory, and no pair of this machine is direct", does)
	}
	return open("%s through system memory; whether a pair of this machine is direct is not known", does)
}

// across reports whether the nearest direct NIC of some GPU is behind a host bridge.
func (j *judging) across(vendors ...Vendor) placement.Answer {
	return placement.Any(j.GPUs, func(g GPU) placement.Answer {
		switch {
		case !g.of(vendors) || g.Nearest == NoNIC || g.Nearest.known() && g.Nearest < PHB:
			return placement.No
		case g.Nearest.known():
			return placement.Yes
		}
		return placement.AnswerUnknown
	})
}

// coherent reports whether some GPU is attached by C2C.
func (j *judging) coherent() placement.Answer {
	return placement.Any(j.GPUs, func(g GPU) placement.Answer { return g.Coherent })
}

// onCPU reports a GPU that is attached by C2C and has its nearest direct NIC on the CPU's
// own ports, so that the way to it is C2C.
func onCPU(g GPU) placement.Answer {
	switch {
	case g.Nearest == NoNIC || g.Nearest.known() && g.Nearest < P2C || g.Nearest == SYS:
		return placement.No
	case g.Coherent != placement.Yes:
		return g.Coherent
	case g.Nearest.known():
		return placement.Yes
	}
	return placement.AnswerUnknown
}

// peerMem reports whether ibv_reg_mr() takes GPU memory: by a client, or by a driver with a
// route of its own.
func (j *judging) peerMem() placement.Answer {
	own := placement.Any(j.NICs, func(n NIC) placement.Answer {
		if n.Driver == efa || n.Driver == cxi {
			return n.OwnRoute
		}
		return placement.No
	})
	if j.PeerMem == placement.Yes || own == placement.No {
		return j.PeerMem
	}
	return own
}

// peer is the verdict on a value that turns dma-bufs off; does is "NCCL turns dma-bufs off".
func (j *judging) peer(does string, vendors ...Vendor) verdict {
	return j.instead(j.peerMem(), does, vendors...)
}

// instead is the verdict if dma-bufs are off, and got says whether ibv_reg_mr() takes GPU
// memory in their place.
func (j *judging) instead(got placement.Answer, does string, vendors ...Vendor) verdict {
	direct := j.direct(vendors...)
	switch {
	case direct == placement.No:
		return pass("%s, and no pair of this machine is direct", does)
	case got == placement.Yes:
		return pass("%s; a peer-memory client registers GPU memory in their place", does)
	case got == placement.No && direct == placement.Yes:
		return warn("%s, and no peer-memory client is registered: data goes through system memory", does).away()
	case got == placement.No:
		return open("%s, and no peer-memory client is registered; whether a pair of this machine is direct is not known", does)
	}
	return open("%s; whether a peer-memory client is registered is not known", does)
}

// byRegMR is the verdict on a program that calls ibv_reg_mr() on GPU memory.
func (j *judging) byRegMR(does string) verdict {
	switch {
	case j.peerMem() == placement.Yes:
		return pass("%s, which a peer-memory client allows", does)
	case j.peerMem() == placement.No:
		return fail("%s, and no peer-memory client is registered: EFAULT", does)
	}
	return open("%s; whether a peer-memory client is registered is not known", does)
}
