// SPDX-License-Identifier: Apache-2.0

package vendor

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Undo is what to do, last first, when something fails or is freed.
type Undo []func() error

// Add puts f before what is there already.
func (u *Undo) Add(f func() error) { *u = append(*u, f) }

// Run does everything, also after an error, and forgets it.
func (u *Undo) Run() error {
	var errs []error
	for i := len(*u) - 1; i >= 0; i-- {
		errs = append(errs, (*u)[i]())
	}
	*u = nil
	return errors.Join(errs...)
}

// View copies between the host and memory of a device, by the runtime's calls.
type View struct {
	On    string // for messages
	Size  int64  // bytes
	Read  func(to []byte, off int64) error
	Write func(from []byte, off int64) error
}

// ReadAt follows io.ReaderAt.
func (v *View) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > v.Size {
		return 0, v.rangeError("read", len(p), off)
	}
	var end error
	if int64(len(p)) > v.Size-off {
		p, end = p[:v.Size-off], io.EOF
	}
	if len(p) == 0 {
		return 0, end
	}
	if err := v.Read(p, off); err != nil {
		return 0, err
	}
	return len(p), end
}

// WriteAt follows io.WriterAt; what does not fit as a whole is not written.
func (v *View) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > v.Size || int64(len(p)) > v.Size-off {
		return 0, v.rangeError("write", len(p), off)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if err := v.Write(p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (v *View) rangeError(op string, n int, off int64) error {
	return &failure.Error{
		Op: op, Device: v.On, Err: failure.ErrRange,
		Detail: fmt.Sprintf("offset %#x, length %#x of %#x bytes", off, n, v.Size),
	}
}

// RoomForFDs refuses beforehand what RLIMIT_NOFILE does not allow. Runtimes
// report a failed system call, or "out of memory", without the reason. If the limit
// cannot be read, the kernel decides.
func RoomForFDs(on string, need int64) error {
	fs := procfs.New("")
	limit, err1 := fs.MaxOpenFiles()
	open, err2 := fs.OpenFiles()
	if err1 != nil || err2 != nil || need <= limit-open {
		return nil
	}
	return &failure.Error{
		Op: "export", Device: on, Err: failure.ErrLimit,
		Detail: fmt.Sprintf("%d exports need as many file descriptors, and %d of %d are taken", need, open, limit),
		Remedy: "raise RLIMIT_NOFILE (ulimit -n), or allow longer pieces",
	}
}

// Beyond refuses beforehand an export that no device can reach as a whole: it is
// longer than the window to the GPU's memory, which l describes.
func Beyond(on string, length int64, l gpualloc.Limit) error {
	return beyond(on, length, bytesize.Format(length), "export and register a part at a time", l)
}

// WholeBeyond is [Beyond] for runtimes whose dma-bufs are of whole allocations, however
// little of one was asked for: the kernel's drivers want all of a dma-buf in the window.
func WholeBeyond(on string, allocations []align.Range, l gpualloc.Limit) error {
	var sum int64
	for _, a := range allocations {
		sum += int64(min(a.Length, uint64(math.MaxInt64-sum)))
	}
	what := "the dma-buf is of the whole allocation, " + bytesize.Format(sum)
	if n := len(allocations); n != 1 {
		what = fmt.Sprintf("the dma-bufs are of %d whole allocations, %s", n, bytesize.Format(sum))
	}
	return beyond(on, sum, what, "allocate less at a time: no part of an allocation is exported by itself", l)
}

func beyond(on string, length int64, what, otherwise string, l gpualloc.Limit) error {
	if length <= l.Bytes {
		return nil
	}
	return &failure.Error{
		Op: "export", Device: on, Err: failure.ErrLimit,
		Detail: fmt.Sprintf("%s, where %s has %s", what, l.Name, bytesize.Format(l.Bytes)),
		Remedy: "enable resizable BAR (and Above 4G Decoding) in the firmware, or " + otherwise,
	}
}

// BAR reads the size in bytes of BAR n of a PCI function, and the file that
// says so; false if it is not to be had.
func BAR(sysRoot, addr string, n int) (size int64, file string, ok bool) {
	sys := sysfs.New(sysRoot)
	name := "bus/pci/devices/" + addr + "/resource"
	text, err := sys.ReadString(name)
	if err != nil {
		return 0, "", false
	}
	size, ok = barSize(text, n)
	return size, sys.Path(name), ok
}

// barSize reads sysfs' resource file: a line a region, first and last address
// and flags.
func barSize(text string, n int) (int64, bool) {
	lines := strings.Split(text, "\n")
	if n >= len(lines) {
		return 0, false
	}
	f := strings.Fields(lines[n])
	if len(f) < 2 {
		return 0, false
	}
	from, err1 := strconv.ParseUint(f[0], 0, 63)
	to, err2 := strconv.ParseUint(f[1], 0, 63)
	if err1 != nil || err2 != nil || from == 0 || to < from {
		return 0, false
	}
	return int64(to - from + 1), true
}

// PageSize is the host's, as an unsigned number.
func PageSize() uint64 { return uint64(os.Getpagesize()) }
