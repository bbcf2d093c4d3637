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

// peerSymbol is the function of ib_core by which nvidia-peermem registers itself.
const peerSymbol = "ib_register_peer_memory_client"

// core describes the loaded ib_core.
type core struct {
	is    string           // the kernel's own or another, in words
	takes placement.Answer // whether it has peer-memory clients
	at    []string         // the files that show it
}

// ibCore finds out which ib_core is loaded. The kernel's own ib_core has no peer-memory clients. A
// distribution can have a patched one, and only the kernel's symbols show that.
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

// unloadable matches the line that the kernel logs when it does not load nvidia-peermem, because the module
// was built for another ib_core, or because the loaded ib_core lacks a function that the module calls.
var unloadable = regexp.MustCompile(`nv(?:idia)?_peer_?mem: (?:(disagrees) about version of symbol|Unknown symbol) ib_(?:un)?register_peer_memory_client(?: \(err (-?\d+)\))?`)

// notLoaded returns the latest line that unloadable matches; "" if there is none. otherBuild says that the
// module was built for another ib_core.
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

// peermem reports whether nvidia-peermem is registered, and whether the machine needs it. If the module is
// not loaded, peermem predicts whether it can be.
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
		l.Unknown("", append(at, where), "whether it is registered with ib_core is not known")
	case loaded == placement.Yes && c.takes == placement.No:
		idle(l, closed, append(at, c.at...), "loaded, and %s has no %s to register with", c.is, peerSymbol)
	case loaded == placement.Yes:
		idle(l, closed, append(at, where), "loaded, and not registered")
	case line != "" && otherBuild:
		idle(l, closed, l.Log().At(), "not loaded, because it was built for another ib_core than %s: %s", c.is, line).Fix(rebuild, "", "")
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

// idle reports a module that is not there, or has no effect: a failure if the driver exports no dma-bufs,
// and otherwise a warning.
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

// predicted says in words whether the module could register itself with ib_core; "" if that is not known.
func predicted(c core) string {
	switch c.takes {
	case placement.Yes:
		return "; " + c.is + " would take it"
	case placement.No:
		return "; with " + c.is + " it cannot be loaded"
	}
	return ""
}

// byDMABuf reports whether there is a pair of NVIDIA's driver whose memory the NIC registers by a dma-buf.
func byDMABuf(l *check.Look) bool {
	return len(check.Select(l.OfDriver("nvidia"), func(p p2p.Pair) bool {
		return !p.Prediction.ByPeerMem && p.Verdict.Link(chain.Route).State.Good() && p.Verdict.Link(chain.Library).State.Good()
	})) > 0
}

// byPeermem reports whether programs can register GPU memory without dma-bufs.
func byPeermem(l *check.Look) bool {
	registered, _ := drivers.PeerClient(l.Machine, "nvidia")
	return registered == placement.Yes
}
