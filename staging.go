// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"sync"
)

// stagingBuffer is pinned host memory that the NIC and peers use in place of a
// source. Either may change behind our back: the staging buffer by a peer, the
// source by a GPU. seen is what both were when they last agreed, so that a
// difference tells who changed what. Who wrote the same again cannot be told: see
// [Buffer.Sync].
type stagingBuffer struct {
	nic *NIC
	src Source
	mem []byte

	mu   sync.Mutex
	seen []byte
	buf  [2][]byte // copies of a stretch of either, made once
}

// syncChunk is how much is compared at a time.
const syncChunk = 64 << 10

// sync makes both agree on length bytes from off on.
func (s *stagingBuffer) sync(off, length int64) error {
	return s.chunks(off, length, s.chunk)
}

// chunks runs do on one stretch after the other. Between two of them others get the lock, so that
// nobody waits for all of a long copy.
func (s *stagingBuffer) chunks(off, length int64, do func(off, n int64) error) error {
	for length > 0 {
		n := min(length, syncChunk)
		s.mu.Lock()
		s.room()
		err := do(off, n)
		s.mu.Unlock()
		if err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}

func (s *stagingBuffer) room() {
	if s.buf[0] == nil {
		s.buf[0], s.buf[1] = make([]byte, syncChunk), make([]byte, syncChunk)
	}
}

// arrived takes over length bytes from off on that an operation of our own has
// put into the staging buffer. What the source does not take stays unseen: a later sync
// finds it to be newer, and tries again.
func (s *stagingBuffer) arrived(off, length int64) error {
	return s.chunks(off, length, func(off, n int64) error {
		came := s.buf[0][:n]
		copy(came, s.mem[off:off+n])
		if _, err := s.src.WriteAt(came, off); err != nil {
			return err
		}
		copy(s.seen[off:off+n], came)
		s.nic.staged.Add(n)
		return nil
	})
}

// chunk compares one stretch. theirs and ours are read once each: the NIC may
// go on writing meanwhile, and a later sync will see that.
func (s *stagingBuffer) chunk(off, n int64) error {
	theirs, ours := s.buf[0][:n], s.buf[1][:n]
	mem, seen := s.mem[off:off+n], s.seen[off:off+n]
	copy(theirs, mem)
	if got, err := s.src.ReadAt(ours, off); err != nil && !(errors.Is(err, io.EOF) && got == len(ours)) {
		return err
	}
	if !bytes.Equal(theirs, seen) {
		// Runs that a peer has changed go to the source.
		err := bridged(theirs, seen, ours, func(i, j int) error {
			if _, err := s.src.WriteAt(theirs[i:j], off+int64(i)); err != nil {
				return err
			}
			copy(seen[i:j], theirs[i:j])
			copy(ours[i:j], theirs[i:j])
			s.nic.staged.Add(int64(j - i))
			return nil
		})
		if err != nil {
			return err
		}
	}
	if bytes.Equal(ours, seen) {
		return nil
	}
	return runs(ours, seen, func(i, j int) error {
		copy(mem[i:j], ours[i:j])
		copy(seen[i:j], ours[i:j])
		s.nic.staged.Add(int64(j - i))
		return nil
	})
}

// bridge is how far apart changes of a peer may lie that go to the source in
// one call. What lies between is written as it was read: a GPU should not write
// so close to where a peer does while a sync runs.
const bridge = 16

// runs calls do for each run of bytes in which a and b differ, without those
// that differ in neither.
func runs(a, b []byte, do func(i, j int) error) error { return bridged(a, b, nil, do) }

// bridged is runs, with runs joined over a few bytes in which keep and b agree.
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

// word is how many bytes are compared at once.
const word = 8

// firstDifferent is the first place from i on at which a and b have different bytes, or their length.
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

// firstEqual is the first place from i on at which a and b have the same byte, or their length.
func firstEqual(a, b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+word <= len(a); i += word {
		x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:])
		// The lowest byte that is zero has its top bit here, and no byte below it has.
		if zeros := (x - ones) &^ x & tops; zeros != 0 {
			return i + bits.TrailingZeros64(zeros)/8
		}
	}
	for ; i < len(a) && a[i] != b[i]; i++ {
	}
	return i
}
