// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Stage is the part of a registration that refused it.
type Stage string

// The stages, in their order.
const (
	StageNone   Stage = ""
	StageUverbs Stage = "uverbs" // checks before the descriptor is looked at
	StageGet    Stage = "get"    // the descriptor
	StageRange  Stage = "range"  // offset and length against the buffer
	StageAttach Stage = "attach" // the exporter's attach
	StagePin    Stage = "pin"    // the exporter's pin
	StageMap    Stage = "map"    // the mapping, which gives the DMA addresses
	StageVmap   Stage = "vmap"   // the CPU's mapping that a software device needs
	StageDriver Stage = "driver" // the driver of the NIC
)

// Failure says which kernel function refused a call.
type Failure struct {
	Stage Stage `json:"stage"` // the stage that refused; uverbs if no kernel function was seen failing
	// Function is the kernel function that was the first to return the error number, or the call if
	// none was seen failing.
	Function string     `json:"function"`
	Errno    unix.Errno `json:"errno"`            // the error number
	Detail   string     `json:"detail"`           // the refusal in words, with the numbers that matter
	Remedy   string     `json:"remedy,omitempty"` // what to change
	Cause    string     `json:"cause,omitempty"`  // the cause, where a rule of the exporter's driver picks one
	// Chain has the kernel functions that were entered, with their answers, in the order of their
	// return.
	Chain []string `json:"chain"`
}

// String is the explanation in one line.
func (f Failure) String() string {
	if f.Errno == 0 {
		return "it did not fail"
	}
	s := fmt.Sprintf("%s refused it: %s (stage %s)", f.Function, errno.Text(f.Errno), f.Stage)
	if f.Detail != "" {
		s = f.Detail + ": " + errno.Text(f.Errno)
	}
	if f.Remedy != "" {
		s += "; " + f.Remedy
	}
	return s
}

// Access flags that REG_DMABUF_MR takes (uverbs_std_types_mr.c): local write,
// remote write, read, atomic, and relaxed ordering.
const dmabufAccess = 1 | 2 | 4 | 8 | 1<<20

// Explain says why a failed call failed: which of the kernel's functions that
// were entered returned the error first. It is the zero Failure for a call
// that succeeded.
func (r *Record) Explain() Failure {
	if !r.Failed() {
		return Failure{}
	}
	f := Failure{Errno: r.Errno}
	for _, s := range r.Steps {
		word := s.Function
		if s.Err != 0 {
			word += " " + errno.Name(s.Err)
		}
		f.Chain = append(f.Chain, word)
	}
	inner, ok := r.refusing()
	if !ok {
		f.Stage, f.Function = StageUverbs, string(r.Call)
		f.Detail = "no function of the chain was seen failing"
		return f
	}
	f.Function = inner.Function
	r.explainStep(&f, inner)
	if r.finding != nil {
		f.Cause, f.Remedy = r.finding.Cause.String(), r.finding.Remedy
		if r.finding.Cause != refusal.Unreachable || r.Unreachable == "" { // r.Unreachable has more detail
			f.Detail += ": " + r.finding.Detail
		}
	}
	if r.Unreachable != "" && decidedByReach(f) {
		f.Detail += ": " + r.Unreachable
		if r.finding == nil || r.finding.Cause != refusal.Pinned && r.detour != "" {
			f.Remedy = r.detour
		}
	}
	return f
}

// decidedByReach reports a refusal that exporters answer with when the kernel
// has found no way for peer-to-peer.
func decidedByReach(f Failure) bool {
	switch f.Errno {
	case unix.EINVAL, unix.EOPNOTSUPP, unix.EREMOTEIO, errno.ENOTSUPP:
		return f.Stage == StageAttach || f.Stage == StagePin || f.Stage == StageMap
	}
	return false
}

// refusing finds the innermost failing function. Inner functions return before
// outer ones, so it is the first of the last run of failures. Functions that undo
// earlier steps, such as an unmapping, return in between and do not end the run.
func (r *Record) refusing() (Step, bool) {
	found, ok := Step{}, false
	for _, s := range r.Steps {
		switch {
		case s.stage == abi.FuncUnmap, s.stage == abi.FuncDetach, s.stage == abi.FuncUmemUnmap, s.stage == abi.FuncP2PType, s.stage == abi.FuncP2PDistance:
		case s.Err == 0:
			ok = false
		case !ok:
			found, ok = s, true
		}
	}
	return found, ok
}

func (r *Record) did(stage uint8) bool {
	for _, s := range r.Steps {
		if s.stage == stage && s.Err == 0 {
			return true
		}
	}
	return false
}

func (r *Record) exporter() string {
	switch b := r.Buffer; {
	case b == nil:
		return "the exporter"
	case b.Exporter == "drm" && b.Driver != "": // drm_gem_prime_export calls all of them that
		return "exporter " + b.Driver
	default:
		return "exporter " + b.name()
	}
}

func (r *Record) importer() string {
	switch {
	case r.Importer == nil:
		return "the importer"
	case r.Importer.PCI != "":
		return "importer " + r.Importer.PCI
	}
	return "importer " + r.Importer.Device
}

func (r *Record) explainStep(f *Failure, s Step) {
	switch s.stage {
	case abi.FuncGet:
		f.Stage = StageGet
		switch {
		case s.Err != unix.EBADF:
			f.Detail = fmt.Sprintf("descriptor %d is no dma-buf", r.FD)
		case r.FD == -1:
			f.Detail = probeWords
		default:
			f.Detail = fmt.Sprintf("descriptor %d is not open in process %d", r.FD, r.PID)
		}
	case abi.FuncExporterAttach:
		f.Stage, f.Detail = StageAttach, fmt.Sprintf("%s refused to be attached to %s (%s)", r.exporter(), r.importer(), s.Function)
	case abi.FuncExporterPin:
		f.Stage, f.Detail = StagePin, fmt.Sprintf("%s refused pin (%s)", r.exporter(), s.Function)
	case abi.FuncExporterMap:
		f.Stage, f.Detail = StageMap, fmt.Sprintf("%s refused map for %s (%s)", r.exporter(), r.importer(), s.Function)
	case abi.FuncAttach:
		f.Stage, f.Detail = StageAttach, fmt.Sprintf("dma_buf_dynamic_attach refused %s for %s; %s", r.exporter(), r.importer(), unseen)
	case abi.FuncPin:
		f.Stage, f.Detail = StagePin, fmt.Sprintf("%s refused pin (dma_buf_pin passes its answer on)", r.exporter())
	case abi.FuncMap:
		f.Stage, f.Detail = StageMap, fmt.Sprintf("dma_buf_map_attachment failed on %s; %s", r.exporter(), unseen)
	case abi.FuncPhysVec, abi.FuncDMAMapResource, abi.FuncDMAMapSgtable:
		f.Stage, f.Detail = StageMap, fmt.Sprintf("%s could not map the memory of %s for %s", s.Function, r.exporter(), r.importer())
	case abi.FuncVmap:
		f.Stage, f.Detail = StageVmap, fmt.Sprintf("%s has no mapping for the CPU (vmap), which %s needs", r.exporter(), r.device())
	case abi.FuncUmemGet:
		r.explainUmem(f)
	case abi.FuncUmemMap:
		f.Stage, f.Detail = StageMap, fmt.Sprintf("ib_umem_dmabuf_map_pages failed on %s", r.exporter())
	case abi.FuncRestrack:
		f.Stage = StageDriver
	default:
		r.explainHandler(f)
	}
}

const unseen = "its own operation was not watched or was not the one to refuse"

func (r *Record) device() string {
	if r.RDMADevice == "" {
		return "the RDMA device"
	}
	return r.RDMADevice
}

// explainUmem explains a refusal by the core's helper itself, between the descriptor and
// the attachment, or after the mapping.
func (r *Record) explainUmem(f *Failure) {
	switch {
	case !r.did(abi.FuncAttach) && r.outOfRange():
		r.explainRange(f)
	case !r.did(abi.FuncAttach):
		f.Stage, f.Detail = StageRange, "the range or the access flags were refused before the buffer was attached"
	default:
		f.Stage, f.Detail = StageDriver, "the memory was attached and then given up"
	}
}

// outOfRange reports whether the requested range does not fit the buffer. If the descriptor was
// not looked up, it reports only a range that no buffer can have.
func (r *Record) outOfRange() bool {
	end := r.Offset + r.Length
	return r.ArgsKnown && (end < r.Offset || r.Length == 0 || r.Buffer != nil && end > r.Buffer.Size)
}

func (r *Record) explainRange(f *Failure) {
	f.Stage, f.Remedy = StageRange, "choose a range inside the buffer"
	switch {
	case r.Length == 0:
		f.Detail, f.Remedy = "the length is 0", "register 1 byte or more"
	case r.Buffer == nil || r.Offset+r.Length < r.Offset:
		f.Detail = fmt.Sprintf("offset %#x + length %#x is beyond any buffer", r.Offset, r.Length)
	default:
		f.Detail = fmt.Sprintf("offset %#x + length %#x does not fit the buffer of %#x bytes", r.Offset, r.Length, r.Buffer.Size)
	}
}

// explainHandler explains a refusal by the verbs handler, below which no function failed.
func (r *Record) explainHandler(f *Failure) {
	page := uint64(os.Getpagesize())
	touched := r.Buffer != nil
	for _, s := range r.Steps {
		touched = touched || s.stage == abi.FuncGet || s.stage == abi.FuncUmemGet
	}
	switch {
	case !touched && r.driverOp == placement.No:
		f.Stage, f.Function = StageUverbs, "UVERBS_METHOD_"+string(r.Call)
		f.Detail = fmt.Sprintf("no driver op: the driver of %s has no reg_user_mr_dmabuf", r.device())
		f.Remedy = "use a device whose driver registers dma-bufs (mlx5, irdma, bnxt_re, efa, mana, ionic)"
	case !touched && r.ArgsKnown && f.Errno == unix.EINVAL && r.Offset%page != r.IOVA%page:
		f.Stage = StageUverbs
		f.Detail = fmt.Sprintf("offset %#x and IOVA %#x differ in their place within a page", r.Offset, r.IOVA)
		f.Remedy = "make them equal modulo the page size"
	case !r.did(abi.FuncAttach) && f.Errno == unix.EINVAL && r.outOfRange():
		// A driver with helpers of its own.
		r.explainRange(f)
	case !touched && r.ArgsKnown && f.Errno == unix.EINVAL && r.Access&^dmabufAccess != 0:
		f.Stage = StageUverbs
		f.Detail = fmt.Sprintf("access flags %#x: %#x are not allowed for a dma-buf", r.Access, r.Access&^dmabufAccess)
		f.Remedy = "leave them out"
	case !touched && r.ArgsKnown && f.Errno == unix.EINVAL && r.Access&(2|8) != 0 && r.Access&1 == 0:
		f.Stage = StageUverbs
		f.Detail = fmt.Sprintf("access flags %#x: remote write and atomic need local write", r.Access)
		f.Remedy = "add local write"
	case !touched:
		f.Stage = StageDriver
		f.Detail = fmt.Sprintf("the driver of %s, or the checks before it, refused before the descriptor was looked at", r.device())
	case r.did(abi.FuncMap) || r.did(abi.FuncUmemGet):
		f.Stage = StageDriver
		f.Detail = fmt.Sprintf("the driver of %s refused after the memory was %s", r.device(), mappedWord(r))
	default:
		f.Stage = StageDriver
		f.Detail = fmt.Sprintf("the driver of %s refused after it had looked at the descriptor", r.device())
	}
	if r.driverOp == placement.AnswerUnknown && !touched && f.Errno == unix.EOPNOTSUPP {
		f.Detail += "; whether it has reg_user_mr_dmabuf could not be read"
	}
}

func mappedWord(r *Record) string {
	if r.did(abi.FuncMap) {
		return "mapped"
	}
	return "attached"
}
