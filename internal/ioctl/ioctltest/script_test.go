// SPDX-License-Identifier: Apache-2.0

package ioctltest

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestScriptReportsMismatch(t *testing.T) {
	s := NewScript(Step{Req: 1})
	if err := s.Ioctl(3, 2, nil); err != unix.EPROTO {
		t.Errorf("wrong request: %v, want EPROTO", err)
	}
	if s.Err() == nil {
		t.Error("Err() = nil after a wrong request")
	}
	if NewScript(Step{Req: 1}).Err() == nil {
		t.Error("Err() = nil with a step left")
	}
}
