// SPDX-License-Identifier: Apache-2.0

package ioctltest

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Step is one expected ioctl of a Script.
type Step struct {
	Req   uint32                   // the request number that must come
	Errno unix.Errno               // the answer; 0 is success
	Fill  func(arg unsafe.Pointer) // checks the request and writes its results, if set
}

// Script is an ioctl.Transport for tests of error paths: it plays Steps in order and
// records what does not match.
type Script struct {
	mu    sync.Mutex
	steps []Step
	next  int
	bad   []string
}

// NewScript returns a transport that expects exactly steps.
func NewScript(steps ...Step) *Script { return &Script{steps: steps} }

// Ioctl plays the next step. An unexpected request answers EPROTO, which no
// driver here uses, and is reported by Err.
func (s *Script) Ioctl(_ int, req uint32, arg unsafe.Pointer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next >= len(s.steps) {
		s.bad = append(s.bad, fmt.Sprintf("call %d: request %#x after the end of the script", s.next, req))
		return unix.EPROTO
	}
	step := s.steps[s.next]
	s.next++
	if step.Req != req {
		s.bad = append(s.bad, fmt.Sprintf("call %d: request %#x, script has %#x", s.next-1, req, step.Req))
		return unix.EPROTO
	}
	if step.Fill != nil {
		step.Fill(arg)
	}
	if step.Errno != 0 {
		return step.Errno
	}
	return nil
}

// Err reports requests that did not match and steps that were not played.
func (s *Script) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bad) > 0 {
		return fmt.Errorf("ioctl script: %q", s.bad)
	}
	if s.next != len(s.steps) {
		return fmt.Errorf("ioctl script: %d of %d steps played", s.next, len(s.steps))
	}
	return nil
}
