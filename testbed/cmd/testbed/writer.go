// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// syncWriter lets two streams share a writer.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// prefixWriter writes whole lines, each with a prefix, and shares w by mu with others.
type prefixWriter struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
	rest   []byte // of a line that has not ended
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	end := bytes.LastIndexByte(p.rest, '\n') + 1
	var lines []byte
	for line := range bytes.Lines(p.rest[:end]) {
		lines = append(append(lines, p.prefix...), line...)
	}
	p.rest = p.rest[end:]
	if _, err := p.w.Write(lines); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Flush ends the last line.
func (p *prefixWriter) Flush() {
	p.mu.Lock()
	n := len(p.rest)
	p.mu.Unlock()
	if n > 0 {
		p.Write([]byte{'\n'})
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
