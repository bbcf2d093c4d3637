// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"errors"
	"fmt"
	"io"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
)

// part is a stretch of a view with its own copy calls.
type part interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// partsView joins parts into one range of bytes.
type partsView struct {
	parts []part
	ends  []int64 // where each part ends, counted from the view's start
}

// openMapped maps every segment that brings no view of its own.
func openMapped(segments []Segment) (view, error) {
	v := &partsView{}
	for _, s := range segments {
		p, err := s.open()
		if err != nil {
			return nil, errors.Join(err, v.Close())
		}
		v.add(p, s.Size)
	}
	return v, nil
}

func (s Segment) open() (part, error) {
	if s.view != nil {
		return s.view()
	}
	return s.Buf.Map(s.Offset, s.Size, dmabuf.ReadWrite)
}

func (v *partsView) add(p part, size int64) {
	v.parts = append(v.parts, p)
	v.ends = append(v.ends, v.size()+size)
}

func (v *partsView) size() int64 {
	if len(v.ends) == 0 {
		return 0
	}
	return v.ends[len(v.ends)-1]
}

func (v *partsView) rangeError(op string, p []byte, off int64) error {
	return &failure.Error{
		Op:     op,
		Detail: fmt.Sprintf("offset %#x, length %#x of a buffer of %#x bytes", off, len(p), v.size()),
		Err:    failure.ErrRange,
	}
}

func (v *partsView) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, v.rangeError("read", p, off)
	case off >= v.size():
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	var end error
	if int64(len(p)) > v.size()-off {
		p, end = p[:v.size()-off], io.EOF
	}
	n, err := v.each(p, off, part.ReadAt)
	if err == nil {
		err = end
	}
	return n, err
}

func (v *partsView) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > v.size() || int64(len(p)) > v.size()-off {
		return 0, v.rangeError("write", p, off)
	}
	return v.each(p, off, part.WriteAt)
}

// each runs copy on the parts that [off, off+len(p)) touches.
func (v *partsView) each(p []byte, off int64, do func(part, []byte, int64) (int, error)) (int, error) {
	done := 0
	start := int64(0)
	for i, end := range v.ends {
		if done == len(p) {
			break
		}
		at := off + int64(done)
		if at < end {
			n := int(min(int64(len(p)-done), end-at))
			got, err := do(v.parts[i], p[done:done+n], at-start)
			done += got
			if err != nil {
				return done, err
			}
		}
		start = end
	}
	return done, nil
}

// Close closes all parts.
func (v *partsView) Close() error {
	var errs []error
	for _, p := range v.parts {
		errs = append(errs, p.Close())
	}
	v.parts, v.ends = nil, nil
	return errors.Join(errs...)
}
