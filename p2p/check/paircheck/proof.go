// SPDX-License-Identifier: Apache-2.0

package paircheck

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Proof has the checks of the result of a live proof.
var Proof = []check.Check{
	{ID: "ACT-EXPORT", Title: "The GPU's memory can be exported", Worst: p2p.ResultFail, Run: check.ProveExport, Links: []chain.Link{chain.Proof},
		Expect: "a dma-buf", Why: "The first step of the proof: a buffer in the GPU, and a descriptor of it that others can use.",
		Fix: chain.Remedy{Change: "see what the driver answered", Command: "dmabuf-reg devices"}, Ref: "DRM_IOCTL_PRIME_HANDLE_TO_FD",
		ByHand: "dmabuf-reg devices"},
	{ID: "ACT-REG", Title: "The NIC registers the GPU's memory", Worst: p2p.ResultFail, Run: check.ProveRegister, Links: []chain.Link{chain.Proof},
		Expect: "a memory region", Why: "The registration is the step that the verdict predicts. One errno has several causes: the trace names the function that refused.",
		Fix: chain.Remedy{Change: "see which function of the kernel refused", Command: check.TraceAgain}, Ref: "ibv_reg_dmabuf_mr(3)",
		ByHand: "dmabuf-reg register --gpu GPU --nic NIC"},
	{ID: "ACT-TRACE", Title: "The registered bytes are in the GPU", Worst: p2p.ResultFail, Run: provePlace, Links: []chain.Link{chain.Proof},
		Expect: "peer-to-peer", Why: "amdgpu, xe and i915 move a buffer to system memory if a NIC does not reach it, and report success. Only the addresses that the kernel gave to the NIC show this.",
		Fix: chain.Remedy{Change: "see the pair's reasons, and what moved the buffer", Command: check.TraceAgain}, Ref: "docs/explanation/trace.md",
		ByHand: "sudo dmabuf-reg verify --trace --gpu GPU --nic NIC"},
	{ID: "ACT-PREDICTION", Title: "The proof agrees with the prediction", Worst: p2p.ResultFail, Run: provePrediction, Links: []chain.Link{chain.Proof},
		Expect: "the outcome that was predicted", Why: "Where it does not, either something is in the way that no check looks for, or a rule of this program does not hold on this machine. The proof is right.",
		Fix: chain.Remedy{Change: "go by the proof, and report the contradiction with a snapshot of the machine", Command: "p2pcheck snapshot FILE"}, Ref: "docs/reference/p2pcheck/proof.md",
		ByHand: "sudo p2pcheck --live --gpu GPU --nic NIC"},
	{ID: "ACT-WRITE", Title: "The bytes that the NIC writes arrive in the GPU", Worst: p2p.ResultFail, Run: proveWrite, Links: []chain.Link{chain.Proof},
		Expect: "every byte, and nothing beside them", Why: "A completion says that a write was sent, not that it arrived: with an IOMMU in the way the old bytes stay.",
		Fix: chain.Remedy{Change: "look for faults of the IOMMU, and for ports that redirect", Command: check.TraceAgain}, Ref: "NVIDIA/cuda-samples#48",
		ByHand: "dmabuf-reg verify --gpu GPU --nic NIC"},
	{ID: "ACT-READ", Title: "The NIC reads the bytes that the GPU has", Worst: p2p.ResultFail, Run: proveRead, Links: []chain.Link{chain.Proof},
		Expect: "every byte", Why: "Some root complexes pass writes between their ports, and no reads.",
		Fix: chain.Remedy{Change: "use a NIC below the GPU's switch, or none that reads"}, Ref: "NVIDIA/open-gpu-kernel-modules#1253",
		ByHand: "dmabuf-reg verify --gpu GPU --nic NIC"},
	{ID: "ACT-ORDER", Title: "No flag arrives before the data written ahead of it", Worst: p2p.ResultFail, Run: proveOrder, Links: []chain.Link{chain.Proof},
		Expect: "all data is there when a flag without relaxed ordering is seen, also data with relaxed ordering", Why: "Applications wait for a flag and then use the data. With relaxed ordering on the flag, or on a platform that relaxes everything, they use the old bytes.",
		Fix: chain.Remedy{Change: "register bulk data without relaxed ordering (NCCL_IB_PCI_RELAXED_ORDERING=0)", Weakens: "bandwidth, on hosts that need relaxed ordering for it"}, Ref: "PCI Express, relaxed ordering",
		ByHand: "sudo p2pcheck --live --gpu GPU --nic NIC"},
	{ID: "ACT-FAULTWATCH", Title: "The kernel reported no fault during the proof", Worst: p2p.ResultFail, Run: proveQuiet, Links: []chain.Link{chain.Proof},
		Expect: "no fault, no message on a device on the way, no link error", Why: "A fault of the IOMMU means that something was blocked, even if the bytes were right this time.",
		Fix: chain.Remedy{Change: "see what the message is about", Command: "dmesg --follow"}, Ref: "/dev/kmsg, aer_dev_*",
		ByHand: "sudo dmesg --follow"},
	{ID: "ACT-BW", Title: "The GPU's memory is about as fast as the host's", Worst: p2p.ResultWarn, Run: proveRates, Links: []chain.Link{chain.Proof},
		Expect: "reads at a tenth of the rate of writes or better, and both at half of what the NIC reaches in host memory or better", Why: "On some ways between two ports reads are slow, and on some everything is slow. One transfer at a time is no benchmark: it shows what is broken, and not how fast the rest is.",
		Fix: chain.Remedy{Change: "measure it", Command: "dmabuf-reg bench HOST:7471"}, Ref: "tenstorrent/tt-umd#3285",
		ByHand: "dmabuf-reg bench HOST:7471"},
	{ID: "ACT-MIGRATE", Title: "A buffer that moves takes its registration along", Worst: p2p.ResultWarn, Run: proveNothing, Links: []chain.Link{chain.Proof},
		Why: "A NIC that maps again has to stop, and go on at the new place.", Ref: "dma_buf_invalidate_mappings()"},
	{ID: "ACT-CLEANUP", Title: "Nothing is left of the proof", Worst: p2p.ResultFail, Run: proveRelease, Links: []chain.Link{chain.Proof},
		Expect: "no region, no attachment, no buffer", Why: "A buffer that stays attached keeps the GPU's memory and its driver in use.",
		Fix: chain.Remedy{Change: "find the process that holds it", Command: "dmabuf-reg inspect"}, Ref: "/sys/kernel/debug/dma_buf/bufinfo",
		ByHand: "sudo dmabuf-reg inspect"},
}

func provePlace(l *check.Look) { check.Climbed(l, p2p.RungPlace, "nothing was registered") }

func proveWrite(l *check.Look) { check.Climbed(l, p2p.RungWrite, "nothing was registered") }

func proveRead(l *check.Look) { check.Climbed(l, p2p.RungRead, "nothing was written") }

func proveOrder(l *check.Look) { check.Climbed(l, p2p.RungOrder, "the bytes were not right before") }

func proveRelease(l *check.Look) { check.Climbed(l, p2p.RungRelease, "nothing was allocated") }

// proveNothing skips a check of a step that proofs do not have.
func proveNothing(l *check.Look) {
	check.PerProof(l, "no part of this proof", func(string, p2p.Pair) {})
}

func provePrediction(l *check.Look) {
	check.PerProof(l, "nothing was predicted", func(name string, p p2p.Pair) {
		switch {
		case p.Agrees() == placement.No:
			l.Fail(name, nil, "%v was predicted, and it is %v", p.Prediction.Short(), p.Proof)
		case p.Agrees() == placement.Yes:
			l.Pass(name, nil, "%s, as predicted", p.Prediction.Short())
		case p.Proof.Outcome == chain.OutcomeUnknown:
			l.Unknown(name, nil, "%s", p.Proof.Why)
		}
	})
}

func proveQuiet(l *check.Look) {
	check.PerProof(l, "", func(name string, p p2p.Pair) {
		w := p.Proof.Watch
		faults, hits := w.Judged()
		quoted := append(slices.Clone(w.Lines), w.Errors...)
		switch {
		case faults || w.Fatal:
			l.Fail(name, w.Where(), "%s", check.Cut(quoted))
		case hits || len(w.Errors) > 0:
			l.Warn(name, w.Where(), "%s", check.Cut(quoted))
		case w.LogErr != nil:
			l.Unknown(name, w.Where(), "%s", machine.Reading{Err: w.LogErr}.Why())
		case !w.Counted:
			l.Unknown(name, w.Where(), "nothing in the log; the kernel does not count the links' errors").SetAside().Fix("turn AER on in the firmware, and take pci=noaer away", "", "")
		case len(w.Lines) > 0:
			l.Pass(name, w.Where(), "nothing that a check looks for: %s", check.Cut(w.Lines))
		default:
			l.Pass(name, w.Where(), "nothing in the log, and no link error")
		}
	})
}
