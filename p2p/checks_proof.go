// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/placement"
)

// traceAgain is the command that has more to say of a pair that failed.
const traceAgain = "dmabuf-reg verify --trace --gpu GPU --nic NIC"

var proofChecks = []Check{
	{ID: "ACT-EXPORT", Title: "The GPU's memory can be exported", Worst: ResultFail, run: (*look).proveExport,
		Expect: "a dma-buf", Why: "The first step of the proof: a buffer in the GPU, and a descriptor of it that others can use.",
		Fix: Remedy{Change: "see what the driver answered", Command: "dmabuf-reg devices"}, Ref: "DRM_IOCTL_PRIME_HANDLE_TO_FD"},
	{ID: "ACT-REG", Title: "The NIC registers the GPU's memory", Worst: ResultFail, run: (*look).proveRegister,
		Expect: "a memory region", Why: "What the whole is about. The errno alone has several causes: the trace names the function that refused.",
		Fix: Remedy{Change: "see which function of the kernel refused", Command: traceAgain}, Ref: "ibv_reg_dmabuf_mr(3)"},
	{ID: "ACT-TRACE", Title: "The registered bytes are in the GPU", Worst: ResultFail, run: (*look).provePlace,
		Expect: "peer-to-peer", Why: "amdgpu, xe and i915 bring a buffer to system memory where a NIC does not reach it, and report success: only the addresses that the kernel handed out tell.",
		Fix: Remedy{Change: "see the pair's reasons, and what moved the buffer", Command: traceAgain}, Ref: "docs/trace.md"},
	{ID: "ACT-PREDICTION", Title: "The proof agrees with the prediction", Worst: ResultFail, run: (*look).provePrediction,
		Expect: "the outcome that was predicted", Why: "Where it does not, either something is in the way that no check looks for, or a rule of this program does not hold on this machine. The proof is right.",
		Fix: Remedy{Change: "go by the proof, and report the contradiction with a snapshot of the machine", Command: "p2pcheck snapshot FILE"}, Ref: "docs/p2pcheck.md, “Proof”"},
	{ID: "ACT-WRITE", Title: "What the NIC writes arrives in the GPU", Worst: ResultFail, run: (*look).proveWrite,
		Expect: "every byte, and nothing beside them", Why: "A completion says that a write was sent, not that it arrived: with an IOMMU in the way the old bytes stay.",
		Fix: Remedy{Change: "look for faults of the IOMMU, and for ports that redirect", Command: traceAgain}, Ref: "NVIDIA/cuda-samples#48"},
	{ID: "ACT-READ", Title: "What the NIC reads is what the GPU has", Worst: ResultFail, run: (*look).proveRead,
		Expect: "every byte", Why: "Some root complexes pass writes between their ports, and no reads.",
		Fix: Remedy{Change: "use a NIC below the GPU's switch, or none that reads"}, Ref: "NVIDIA/open-gpu-kernel-modules#1253"},
	{ID: "ACT-ORDER", Title: "No flag arrives before the data written ahead of it", Worst: ResultFail, run: (*look).proveOrder,
		Expect: "data that may be reordered, complete when a flag that may not is seen", Why: "Applications wait for a flag and then use the data. With relaxed ordering on the flag, or on a platform that relaxes everything, they use the bytes of before.",
		Fix: Remedy{Change: "register bulk data without relaxed ordering (NCCL_IB_PCI_RELAXED_ORDERING=0)", Weakens: "bandwidth, on hosts that need relaxed ordering for it"}, Ref: "PCI Express, relaxed ordering"},
	{ID: "ACT-FAULTWATCH", Title: "The kernel had nothing to say meanwhile", Worst: ResultFail, run: (*look).proveQuiet,
		Expect: "no fault, no message on a device on the way, no link error", Why: "A fault of the IOMMU means that something was blocked, even if the bytes were right this time.",
		Fix: Remedy{Change: "see what the message is about", Command: "dmesg --follow"}, Ref: "/dev/kmsg, aer_dev_*"},
	{ID: "ACT-BW", Title: "The GPU's memory is about as fast as the host's", Worst: ResultWarn, run: (*look).proveRates,
		Expect: "reads at a tenth of the rate of writes or better, and both at half of what the NIC reaches in host memory or better", Why: "Some ways between two ports pass reads a few bytes at a time, and some pass little of anything. One transfer at a time is no benchmark: it shows what is broken, and not how fast the rest is.",
		Fix: Remedy{Change: "measure it", Command: "dmabuf-reg bench"}, Ref: "tenstorrent/tt-umd#3285"},
	{ID: "ACT-MIGRATE", Title: "A buffer that moves takes its registration along", Worst: ResultWarn, run: (*look).proveNothing,
		Why: "A NIC that maps again has to stop, and go on at the new place.", Ref: "dma_buf_invalidate_mappings()"},
	{ID: "ACT-CLEANUP", Title: "Nothing is left of the proof", Worst: ResultFail, run: (*look).proveRelease,
		Expect: "no region, no attachment, no buffer", Why: "What stays attached keeps the GPU's memory, and its driver, in use.",
		Fix: Remedy{Change: "see who holds it", Command: "dmabuf-reg inspect"}, Ref: "/sys/kernel/debug/dma_buf/bufinfo"},
}

// OfProof reports a check that says something of proofs only.
func OfProof(id string) bool {
	return strings.HasPrefix(id, "ACT-") || id == "GPU-EXPORT" || id == "GPU-BO-LOCATION" || id == "NET-LOOPBACK"
}

// answered are checks that only say what becomes of a registration:
// where it was tried, and is direct, what they could not find out does not
// matter. Registers and kinds that nobody read stay unread.
var answered = []string{"P2P-VERDICT", "P2P-NV-GATE", "GPU-DRIVER", "GPU-EXPORTER-OPS", "NIC-DRIVER-DMABUF"}

// answer makes an unknown a pass, if all pairs that it is about are proven to be
// direct.
func (l *look) answer(f *Finding) {
	if f.Result != ResultUnknown || !slices.Contains(answered, f.Check.ID) || len(f.Scope) == 0 {
		return
	}
	for _, scope := range f.Scope {
		tried := 0
		for _, p := range l.pairs {
			if p.name() != scope && p.GPU.Name != scope && p.NIC.Name != scope {
				continue
			}
			if p.Proof == nil || p.Proof.Outcome != Direct || p.Proof.Failed() {
				return
			}
			tried++
		}
		if tried == 0 {
			return
		}
	}
	f.Result, f.Remedy = ResultPass, nil
	f.Read += "; the proof says: direct"
}

// unproven is why these checks say nothing.
const unproven = "nothing was allocated or registered: --live does that"

// perProof runs f for each pair that was tried. What f does not report has
// nothing to say; why is the reason.
func (l *look) perProof(why string, f func(name string, p Pair)) {
	tried := false
	for _, p := range l.pairs {
		if p.Proof != nil {
			tried = true
			f(p.name(), p)
		}
	}
	switch {
	case !tried:
		l.skip(unproven)
	case len(l.found) == 0:
		l.skip("%s", why)
	}
}

// climbed reports a rung, but for pairs that did not get so far. Those of which
// the proof says why are left out for that reason.
func (l *look) climbed(r Rung, why string) {
	for _, p := range l.pairs {
		if p.Proof != nil && p.Proof.Steps[r].Result == ResultSkip && p.Proof.Steps[r] != notReached {
			why = p.Proof.Steps[r].Detail
		}
	}
	l.perProof(why, func(name string, p Pair) {
		s := p.Proof.Steps[r]
		if s.Result != ResultSkip {
			l.say(s.Result, name, nil, "%s", s.Detail).forPair(p)
		}
	})
}

// forPair puts the devices' names into the remedy's command.
func (f *Finding) forPair(p Pair) {
	if f.Remedy == nil {
		return
	}
	gpu := p.GPU.Name
	if p.GPU.Exporter.PCI != nil {
		gpu = "drm:" + gpu
	}
	f.Remedy.Command = strings.NewReplacer("GPU", gpu, "NIC", p.NIC.Name).Replace(f.Remedy.Command)
}

func (l *look) proveExport() {
	l.perProof("nothing was allocated", func(name string, p Pair) {
		made, out := p.Proof.Steps[RungAllocate], p.Proof.Steps[RungExport]
		switch {
		case made.Result == ResultFail:
			l.fail(name, nil, "%s", made.Detail)
		case made.Result == ResultUnknown:
			l.unknown(name, nil, "%s", made.Detail)
		case out.Result == ResultFail:
			l.fail(name, nil, "%s", out.Detail)
		case out.Result == ResultPass:
			l.pass(name, nil, "%s", out.Detail)
		default:
			l.unknown(name, nil, "%s", out.Detail)
		}
	})
}

func (l *look) proveRegister() { l.climbed(RungRegister, "nothing was exported") }
func (l *look) provePlace()    { l.climbed(RungPlace, "nothing was registered") }
func (l *look) proveWrite()    { l.climbed(RungWrite, "nothing was registered") }
func (l *look) proveRead()     { l.climbed(RungRead, "nothing was written") }
func (l *look) proveOrder()    { l.climbed(RungOrder, "the bytes were not right before") }
func (l *look) proveRelease()  { l.climbed(RungRelease, "nothing was allocated") }

// proveNothing is of steps that no proof takes.
func (l *look) proveNothing() {
	l.perProof("no part of this proof", func(string, Pair) {})
}

func (l *look) provePrediction() {
	l.perProof("nothing was predicted", func(name string, p Pair) {
		switch {
		case p.Agrees() == placement.No:
			l.fail(name, nil, "%v was predicted, and it is %v", p.Prediction.short(), p.Proof)
		case p.Agrees() == placement.Yes:
			l.pass(name, nil, "%s, as predicted", p.Prediction.short())
		case p.Proof.Outcome == OutcomeUnknown:
			l.unknown(name, nil, "%s", p.Proof.Why)
		}
	})
}

// short is the outcome alone.
func (p Prediction) short() string {
	if p.Outcome == Refused {
		return fmt.Sprintf("%v with %s", p.Outcome, errno.Name(p.Errno))
	}
	return p.Outcome.String()
}

func (l *look) proveQuiet() {
	l.perProof("", func(name string, p Pair) {
		w := p.Proof.Watch
		faults, hits := w.judged()
		quoted := append(slices.Clone(w.Lines), w.Errors...)
		switch {
		case faults || w.fatal:
			l.fail(name, w.where(), "%s", cut(quoted))
		case hits || len(w.Errors) > 0:
			l.warn(name, w.where(), "%s", cut(quoted))
		case w.LogErr != nil:
			l.unknown(name, w.where(), "%s", reading{err: w.LogErr}.why())
		case !w.Counted:
			l.unknown(name, w.where(), "nothing in the log; nobody counts the links' errors").aside().fix("turn AER on in the firmware, and take pci=noaer away", "", "")
		case len(w.Lines) > 0:
			l.pass(name, w.where(), "nothing that a check looks for: %s", cut(w.Lines))
		default:
			l.pass(name, w.where(), "nothing in the log, and no link error")
		}
	})
}

// judged looks for what the checks look for: faults of the IOMMU, and the rest.
func (w Watch) judged() (faults, hits bool) {
	for _, line := range w.Lines {
		for _, p := range patterns {
			if p.match.MatchString(line) {
				hits = true
				faults = faults || p.check == "ISO-FAULTS"
			}
		}
	}
	return faults, hits
}

func (w Watch) where() []string { return []string{"/dev/kmsg"} }

// cut is the beginning of a list, in a line.
func cut(all []string) string {
	if more := len(all) - shownLines; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(all[:shownLines], "; "), more)
	}
	return strings.Join(all, "; ")
}
