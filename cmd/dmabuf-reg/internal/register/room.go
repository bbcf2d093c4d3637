// SPDX-License-Identifier: Apache-2.0

package register

import (
	"fmt"
	"math"
	"math/bits"
	"os"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/internal/bytesize"
)

// About how much system memory a registration takes, whichever memory the
// buffer is in: the objects of the driver, ib_uverbs, libibverbs and this program
// for each MR, and for each page of the range an entry of the scatter list that
// the exporter maps, and its address in the driver's table. 500 MRs of 64 MiB
// with rxe were seen to take 31 bytes a page of udmabuf, whose entries are a page
// each, and 100000 of 4 KiB to take 2.8 KiB each, 1.9 of them of the program.
// Exporters of larger pieces take less.
const (
	bytesOfMR   = 3 << 10
	bytesOfPage = 32
)

// A look at the limits takes as long as a registration or two. There is one
// every so many registrations, and before they have taken so much.
const (
	LookEvery = 1024
	lookBytes = 64 << 20
)

// Room watches that many registrations of the same range do not take the
// memory that the machine lives on: the kernel's answer is the OOM killer.
type Room struct {
	Env    gpualloc.Env
	NIC    string
	MRs    int    // of each registration
	Length uint64 // of the range, as far as it is in the buffer
	Count  int    // registrations
}

// newRoom refuses beforehand what device and memory have no room for.
func newRoom(dev *ibvfd.Context, src *buffer.Source, r *Result, count int) (*Room, error) {
	space := &Room{NIC: r.NIC, MRs: overlapping(src.Segments, r.Offset, r.Length), Length: min(r.Length, uint64(src.Size)), Count: count}
	// A device that does not say what it can do is asked by registering.
	if attr, err := dev.QueryDevice(); err == nil {
		if err := space.checkDevice(attr.MaxMR); err != nil {
			return nil, err
		}
	}
	return space, space.look(0)
}

// overlapping counts the segments that a range needs MRs for.
func overlapping(segments []region.Segment, offset, length uint64) int {
	n, at := 0, uint64(0)
	for _, s := range segments {
		if at < offset+length && offset < at+s.Length {
			n++
		}
		at += s.Length
	}
	return max(n, 1)
}

// checkDevice refuses more MRs than the device can have; 0 is not known.
func (r *Room) checkDevice(most int) error {
	if need := times(uint64(r.MRs), r.Count); most > 0 && need > int64(most) {
		return &failure.Error{
			Op: "register MRs", Device: r.NIC,
			Detail: fmt.Sprintf("%d MRs, where the device has %d at most (max_mr)", need, most),
			Remedy: "lower --count", Err: failure.ErrLimit,
		}
	}
	return nil
}

// Cost is what n registrations take, in bytes.
func (r *Room) Cost(n int) int64 { return times(r.each(), n) }

func (r *Room) each() uint64 {
	page := uint64(os.Getpagesize())
	return uint64(r.MRs)*bytesOfMR + (r.Length/page+1)*bytesOfPage
}

// interval is after how many registrations to look again.
func (r *Room) interval() int { return int(min(LookEvery, max(1, lookBytes/r.each()))) }

// look refuses the rest if memory has no room for it once done registrations
// have been made. It is asked before each, and looks before some. While they
// are made it wants room for one interval at least: the estimate may be low.
func (r *Room) look(done int) error {
	if r == nil || done%r.interval() != 0 {
		return nil
	}
	need, what := r.Cost(r.Count), fmt.Sprintf("%d registrations of %s need", r.Count, bytesize.Format(int64(r.Length)))
	if done > 0 {
		need, what = r.Cost(max(r.Count-done, r.interval())), "to go on needs"
	}
	for _, l := range gpualloc.MemoryLimits(r.Env) {
		if need > l.Bytes {
			return &failure.Error{
				Op: "register MRs", Device: r.NIC,
				Detail: fmt.Sprintf("%s about %s of system memory for what driver and libraries keep of them, where %s leaves %s",
					what, bytesize.Format(need), l.Name, bytesize.Format(l.Bytes)),
				Remedy: "lower --count, or force it with --force (the kernel may then kill processes)", Err: failure.ErrLimit,
			}
		}
	}
	return nil
}

// times multiplies. A product that is too large becomes the largest number.
func times(a uint64, n int) int64 {
	if high, low := bits.Mul64(a, uint64(n)); high == 0 && low < math.MaxInt64 {
		return int64(low)
	}
	return math.MaxInt64
}
