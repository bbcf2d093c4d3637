// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
)

// stagingBuffer is pinned host memory that the NIC and peers use in place of a source. Both may
// change at any time: a peer may write to the staging buffer, and a GPU to the source. seen holds
// the bytes that both had when they were last equal; a difference from it shows which side has
// changed. A write of the same bytes again makes no difference: see [Buffer.Sync].
type stagingBuffer struct {
	src   Source
	mem   []byte
	moved *atomic.Int64 // counts the bytes that are copied

	mu   sync.Mutex
	seen []byte
	buf  [2][]byte // copies of a chunk of both, allocated once
}

// syncChunk is the number of bytes that are compared at a time.
const syncChunk = 64 << 10

// sync makes both equal for length bytes from off on, and returns how many it has copied.
func (s *stagingBuffer) sync(off, length int64) (moved int64, err error) {
	return s.chunks(off, length, s.chunk)
}

// chunks runs do, which returns how many bytes it has copied, on one chunk after the other.
// Between two chunks it releases the lock, so that other goroutines do not wait for all of a long
// copy.
func (s *stagingBuffer) chunks(off, length int64, do func(off, n int64) (int64, error)) (moved int64, err error) {
	for length > 0 {
		n := min(length, syncChunk)
		s.mu.Lock()
		s.room()
		copied, err := do(off, n)
		s.mu.Unlock()
		s.moved.Add(copied)
		moved += copied
		if err != nil {
			return moved, err
		}
		off, length = off+n, length-n
	}
	return moved, nil
}

func (s *stagingBuffer) room() {
	if s.buf[0] == nil {
		s.buf[0], s.buf[1] = make([]byte, syncChunk), make([]byte, syncChunk)
	}
}

// arrived copies length bytes from off on, which a local operation has put into the staging
// buffer, to the source. If the source refuses them, seen does not change: a later sync finds
// the difference, and tries again. It returns how many bytes it has copied.
func (s *stagingBuffer) arrived(off, length int64) (moved int64, err error) {
	return s.chunks(off, length, func(off, n int64) (int64, error) {
		came := s.buf[0][:n]
		copy(came, s.mem[off:off+n])
		if _, err := s.src.WriteAt(came, off); err != nil {
			return 0, err
		}
		copy(s.seen[off:off+n], came)
		return n, nil
	})
}

// chunk compares one chunk. It reads theirs and ours once each: the NIC may write meanwhile, and
// a later sync finds the difference. It returns how many bytes it has copied.
func (s *stagingBuffer) chunk(off, n int64) (moved int64, err error) {
	theirs, ours := s.buf[0][:n], s.buf[1][:n]
	mem, seen := s.mem[off:off+n], s.seen[off:off+n]
	copy(theirs, mem)
	if got, err := s.src.ReadAt(ours, off); err != nil && !(errors.Is(err, io.EOF) && got == len(ours)) {
		return 0, err
	}
	if !bytes.Equal(theirs, seen) {
		// Runs that a peer has changed go to the source.
		err := bridged(theirs, seen, ours, func(i, j int) error {
			if _, err := s.src.WriteAt(theirs[i:j], off+int64(i)); err != nil {
				return err
			}
			copy(seen[i:j], theirs[i:j])
			copy(ours[i:j], theirs[i:j])
			moved += int64(j - i)
			return nil
		})
		if err != nil {
			return moved, err
		}
	}
	if bytes.Equal(ours, seen) {
		return moved, nil
	}
	err = runs(ours, seen, func(i, j int) error {
		copy(mem[i:j], ours[i:j])
		copy(seen[i:j], ours[i:j])
		moved += int64(j - i)
		return nil
	})
	return moved, err
}

// bridge is the distance up to which two changes of a peer go to the source in one call. The
// bytes between them are written as they were read: a GPU should not write so close to a
// peer's writes while a sync runs.
const bridge = 16

// runs calls do for each run of bytes in which a and b differ, without bytes in which they do
// not.
func runs(a, b []byte, do func(i, j int) error) error { return bridged(a, b, nil, do) }

// bridged is runs, but joins runs over a few bytes in which keep and b agree.
func bridged(a, b, keep []byte, do func(i, j int) error) error {
	for i := firstDifferent(a, b, 0); i < len(a); {
		end := firstEqual(a, b, i) // of the run
		for j := end; j < len(a) && j-end <= bridge; {
			if a[j] != b[j] {
				end = firstEqual(a, b, j)
				j = end
				continue
			}
			if keep == nil || keep[j] != b[j] {
				break
			}
			j++
		}
		if err := do(i, end); err != nil {
			return err
		}
		i = firstDifferent(a, b, end)
	}
	return nil
}

// word is the number of bytes that are compared at once.
const word = 8

// firstDifferent returns the first index from i on at which a and b differ, or their length.
func firstDifferent(a, b []byte, i int) int {
	for ; i+word <= len(a); i += word {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for ; i < len(a) && a[i] == b[i]; i++ {
	}
	return i
}

// firstEqual returns the first index from i on at which a and b are equal, or their length.
func firstEqual(a, b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+word <= len(a); i += word {
		x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:])
		// The lowest zero byte has its top bit set here, and no byte below it has.
		if zeros := (x - ones) &^ x & tops; zeros != 0 {
			return i + bits.TrailingZeros64(zeros)/8
		}
	}
	for ; i < len(a) && a[i] != b[i]; i++ {
	}
	return i
}
