// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"
)

// stream is an open file of a copy. Package os would wait for a file that has nothing to say yet.
type stream struct {
	mu          sync.Mutex
	fd          int // -1 after the end
	name        string
	limit, left int64 // how much may be read, and how much of it is left
}

// Read reads the next part of the file.
func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return 0, &fs.PathError{Op: "read", Path: s.name, Err: fs.ErrClosed}
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := again(func() (int, error) { return unix.Read(s.fd, p) })
	switch {
	case err != nil:
		return 0, &fs.PathError{Op: "read", Path: s.name, Err: err}
	case n == 0:
		return 0, io.EOF
	case int64(n) > s.left:
		n, s.left = int(s.left), 0
		return n, &fs.PathError{Op: "read", Path: s.name, Err: tooLarge(s.limit)}
	}
	s.left -= int64(n)
	return n, nil
}

// Close closes the file.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return &fs.PathError{Op: "close", Path: s.name, Err: fs.ErrClosed}
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return wrapped("close", s.name, err)
}

// logStream is the kernel's log, as far as it has been written. The kernel gives no part of a record, so each has to
// fit into the room for it. If records were overwritten before they were read, the error is EPIPE once, and
// the next one that is read is the oldest there is.
type logStream struct {
	*bufio.Reader
	io.Closer
}

func newLogStream(s *stream) io.ReadCloser {
	const room = 64 << 10 // the longest record has 8 KiB
	return logStream{bufio.NewReaderSize(s, room), s}
}

// Read reads the next part of the log.
func (l logStream) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if errors.Is(err, unix.EAGAIN) {
		err = io.EOF
	}
	return n, err
}
