// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// peerSymbol is what nvidia-peermem registers itself by.
const peerSymbol = "ib_register_peer_memory_client"

// core is the loaded ib_core: the kernel's own or another, and whether it takes peer-memory clients.
type core struct {
	is    string // in words
	takes placement.Answer
	at    []string
}

// ibCore finds out which ib_core is loaded. The kernel's own has no peer-memory clients; kernels
// of distributions can have a patched one, of which only the symbols tell.
func ibCore(l *check.Look) core {
	c := core{is: "ib_core", at: []string{"/sys/module/ib_core/taint"}}
	own := l.Machine.OutOfTree("ib_core")
	switch own {
	case placement.Yes:
		c.is = strings.TrimSpace("ib_core of MLNX_OFED or DOCA-OFED " + l.Read("sys/module/ib_core/version").Text)
		c.takes = placement.Yes
	case placement.No:
		c.is = "the kernel's own ib_core"
		if !l.Machine.Kernel.Backports() {
			c.takes = placement.No
		}
	}
	if there, where := l.There("sys/kernel/mm/memory_peers"); there == placement.Yes {
		c.takes, c.at = placement.Yes, append(c.at, where...)
	}
	if has, _ := machine.HasSymbol(l.Machine.Proc, peerSymbol, "ib_register_device"); has != placement.AnswerUnknown {
		c.takes, c.at = has, append(c.at, "/proc/kallsyms")
	}
	return c
}

// unloadable is a line of the log by which nvidia-peermem did not load: it was built for another
// ib_core, or the one that is loaded lacks what it asks for.
var unloadable = regexp.MustCompile(`nv(?:idia)?_peer_?mem: (?:(disagrees) about version of symbol|Unknown symbol) ib_(?:un)?register_peer_memory_client(?: \(err (-?\d+)\))?`)

// notLoaded is the last such line, and whether the two are of different builds.
func notLoaded(l *check.Look) (line string, otherBuild bool) {
	log := l.Log()
	if log.Err != nil {
		return "", false
	}
	for _, line := range slices.Backward(log.Lines) {
		if m := unloadable.FindStringSubmatch(line); m != nil {
			return line, m[1] != "" || m[2] == "-22"
		}
	}
	return "", false
}

// The changes that make nvidia-peermem load, and that make it unnecessary.
const (
	rebuild   = "build NVIDIA's modules anew after each change of MLNX_OFED, DOCA-OFED or the kernel, and load nvidia-peermem after them; programs that register dma-bufs do without it"
	doWithout = "do not load it, and use dma-bufs (NCCL from 2.19 on, UCX); programs that call ibv_reg_mr() on GPU memory need DOCA-OFED or MLNX_OFED, and NVIDIA's modules built after it"
	regMR     = "ibv_reg_mr() of GPU memory answers EFAULT"
)

// peermem reports whether nvidia-peermem is there where it is needed, and predicts whether it
// could be.
func peermem(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	closed, evidence := proprietary(l)
	loaded, at := l.There("sys/module/nvidia_peermem")
	registered, where := drivers.PeerClient(l.Machine, "nvidia")
	c := ibCore(l)
	line, otherBuild := notLoaded(l)
	switch {
	case registered == placement.Yes:
		l.Pass("", []string{where}, "registered with %s", c.is)
	case loaded == placement.AnswerUnknown || loaded == placement.Yes && registered == placement.AnswerUnknown:
		l.Unknown("", append(at, where), "not known")
	case loaded == placement.Yes && c.takes == placement.No:
		idle(l, closed, append(at, c.at...), "loaded, and %s has no %s to register with", c.is, peerSymbol)
	case loaded == placement.Yes:
		idle(l, closed, append(at, where), "loaded, and not registered")
	case line != "" && otherBuild:
		idle(l, closed, l.Log().At(), "not loaded, for it was built for another ib_core than %s: %s", c.is, line).Fix(rebuild, "", "")
	case line != "" && closed == placement.No:
		l.Warn("", l.Log().At(), "%s has no such clients, and so nvidia-peermem cannot be loaded; dma-bufs do not need it: %s", c.is, line).Fix(doWithout, "", "")
	case closed == placement.Yes:
		f := l.Fail("", append(at, evidence...), "not loaded, and the proprietary modules export no dma-bufs%s", predicted(c))
		f.Fix("install the open modules (GPUs from Turing on), or MLNX_OFED and load nvidia-peermem", "", "")
		if c.takes == placement.Yes {
			f.Fix("load it, or install the open modules (GPUs from Turing on)", "modprobe nvidia-peermem", "")
		}
	case closed == placement.No:
		l.Pass("", at, "not loaded, and dma-bufs do not need it%s; without it %s", predicted(c), regMR)
	default:
		l.Unknown("", append(at, evidence...), "not loaded, and whether the modules are the open ones, which do without, is not known")
	}
}

// idle reports a module without effect: a failure if no dma-bufs take its place.
func idle(l *check.Look, closed placement.Answer, at []string, format string, args ...any) *check.Finding {
	read := fmt.Sprintf(format, args...)
	switch {
	case closed == placement.Yes:
		return l.Fail("", at, "%s; the proprietary modules export no dma-bufs", read)
	case byDMABuf(l):
		return l.Warn("", at, "%s; dma-bufs do not need it, and without it %s", read, regMR)
	}
	return l.Warn("", at, "%s; without it %s", read, regMR)
}

// predicted says whether the module could register itself with ib_core.
func predicted(c core) string {
	switch c.takes {
	case placement.Yes:
		return "; " + c.is + " would take it"
	case placement.No:
		return "; with " + c.is + " it cannot be loaded"
	}
	return ""
}

// byDMABuf reports a pair whose memory a dma-buf registers.
func byDMABuf(l *check.Look) bool {
	return len(check.Select(l.OfDriver("nvidia"), func(p p2p.Pair) bool {
		return !p.Prediction.ByPeerMem && p.Verdict.Link(chain.Route).State.Good() && p.Verdict.Link(chain.Library).State.Good()
	})) > 0
}

// byPeermem reports that programs can register GPU memory without dma-bufs.
func byPeermem(l *check.Look) bool {
	registered, _ := drivers.PeerClient(l.Machine, "nvidia")
	return registered == placement.Yes
}
