// SPDX-License-Identifier: Apache-2.0

package station

import (
	"context"
	"errors"
	"slices"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/witness"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// registration is how one NIC reaches a side's memory.
type registration struct {
	NIC       string `json:"nic"`        // the name of the NIC
	NICReason string `json:"nic_reason"` // why this NIC was taken
	// Path is as that of the side, or "missing": this NIC does not reach the memory, and another one
	// does.
	Path  string `json:"path"`
	Route string `json:"route"` // the call that registered the memory; "" if none did
	Why   string `json:"why"`   // the reason of that path, in words
	// Placement is where the bytes were when they had been registered; null without --trace, and where
	// only host memory is registered.
	Placement *placement.Placement `json:"placement"`
	// Failure is the refusal of the registration, as --trace saw it; null without --trace or without a
	// refusal.
	Failure *trace.Failure `json:"failure"`
}

// The Path of a buffer that is registered, and of one that is copied through host memory.
const (
	PathDirect = "direct"
	PathStaged = "staged"
)

// PathWord is a Path as text has it. The text of all commands calls memory direct only if DMA is known to go straight
// to a device's memory (placement.Placement.Direct), and a registration does not say that.
func PathWord(path string) string {
	if path == PathDirect {
		return "registered"
	}
	return path
}

// PathWords is a Path with its reason as text has them: "registered by …", "staged: …".
func PathWords(path, why string) string {
	if path == PathDirect {
		return why // it begins with "registered by"
	}
	return path + ": " + why
}

// pathMissing is the Path of a NIC that does not reach memory which another one reaches. The NIC's rail
// carries none of the bytes.
const pathMissing = "missing"

// PathMoved is the Path of a buffer that is registered, and whose bytes are not in the GPU's memory.
const PathMoved = "moved"

// register makes the station's buffer. With traced, a tracer watches that. It is closed before any byte
// is moved.
func (s *Station) register(ctx context.Context, p memory.Policy, traced bool) (err error) {
	seen, err := witness.New(traced && s.src != nil && p != memory.StagedOnly)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seen.Close()) }()
	if s.Bufs, err = s.Buffer(ctx, p); err != nil {
		_ = seen.Refusal(ctx, err) // err says what was seen
		return err
	}
	s.Buf = s.Bufs[0]
	for i, b := range s.Bufs {
		switch r, path := &s.Registrations[i], b.Path(); {
		case seen == nil:
		case path.Route != "":
			where, err := seen.Buffer(ctx, b)
			if err != nil {
				return err
			}
			r.Placement = &where
		case path.Reason != nil:
			r.Failure = seen.Refusal(ctx, path.Reason)
		}
	}
	return nil
}

// Buffer makes Buffers of the station's memory, one for each NIC.
func (s *Station) Buffer(ctx context.Context, p memory.Policy) ([]*memory.Buffer, error) {
	if s.src == nil {
		return s.AllocHost(s.Memory.Size)
	}
	opt := memory.BufferOptions{Policy: p, PeerDirect: s.peer}
	if len(s.nics) == 1 {
		return listOf(s.nics[0].Register(s.src.Alloc, opt))
	}
	return memory.RegisterSource(ctx, s.nics, nil, s.src.Alloc, s.src.Alloc.Size(), opt)
}

// AllocHost makes Buffers of host memory, one for each NIC.
func (s *Station) AllocHost(size int64) ([]*memory.Buffer, error) {
	if len(s.nics) == 1 {
		return listOf(s.nics[0].AllocHost(size))
	}
	return memory.AllocHostWith(s.nics, size, memory.RelaxedOrdering)
}

func listOf(b *memory.Buffer, err error) ([]*memory.Buffer, error) {
	if err != nil {
		return nil, err
	}
	return []*memory.Buffer{b}, nil
}

// Copied returns how many bytes were copied between staged memory and its source.
func (s *Station) Copied() (n int64) {
	for _, nic := range s.nics {
		n += nic.Stats().Staged
	}
	return n
}

// describe says how each NIC reaches the memory. The side's own fields are those of the
// first NIC that does.
func (s *Station) describe() {
	first := 0
	for i, b := range slices.Backward(s.Bufs) {
		p := b.Path()
		if s.describeOne(&s.Registrations[i], p); p.Direct != memory.Missing {
			first = i
		}
	}
	r := s.Registrations[first]
	s.Path, s.Route, s.Why, s.Placement, s.Failure = r.Path, r.Route, r.Why, r.Placement, r.Failure
}

func (s *Station) describeOne(r *registration, p memory.Path) {
	r.Route = string(p.Route)
	switch {
	case s.src == nil:
		r.Path, r.Why = Host, "host memory, which every NIC reaches"
	case p.Direct == memory.Missing:
		r.Path, r.Why = pathMissing, "the registration was refused, and another NIC reaches the memory: "+p.Reason.Error()
	case p.Direct != memory.Staged:
		r.Path, r.Why = PathDirect, "registered by "+r.Route
		if p.Why != "" {
			r.Why += ": " + p.Why
		}
		switch {
		case r.Placement != nil && s.Memory.VRAM() && away(r.Placement.Memory):
			r.Path = PathMoved
			r.Why += ", but its bytes are not in the GPU's memory: " + r.Placement.String()
		case r.Placement != nil:
			r.Why += "; " + r.Placement.String()
		case s.Memory.VRAM():
			r.Why += "; where its driver has left the bytes is not known (--trace shows it)"
		}
	case p.Reason != nil:
		r.Path, r.Why = PathStaged, "the registration was refused: "+p.Reason.Error()
	default:
		r.Path, r.Why = PathStaged, "asked for by --policy"
	}
}

// away reports that none of a GPU's bytes are in its memory.
func away(m placement.Memory) bool {
	return m == placement.SystemMemory || m == placement.Bounced
}

// OnHost reports whether the memory is the host's, made by no exporter.
func (s *Station) OnHost() bool { return s.src == nil }

// WriteSource writes into memory that an exporter made.
func (s *Station) WriteSource(p []byte, off int64) (int, error) { return s.src.Alloc.WriteAt(p, off) }
