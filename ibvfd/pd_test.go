// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// An MR that could not be discarded ends with its PD.
func TestDiscard(t *testing.T) {
	k := &kernel{reg: always(0)}
	pd := scripted(t, newScript(), k)
	mem := new(ownerOfNothing)
	var mrs []*MR
	for range 2 {
		mr, err := pd.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 1, Policy: RouteIoctlOnly, SkipChecks: true, Owner: mem})
		if err != nil {
			t.Fatal(err)
		}
		mrs = append(mrs, mr)
	}
	k.destroy = unix.EBUSY
	if err := pd.Discard(mrs...); !errors.Is(err, unix.EBUSY) {
		t.Errorf("%v", err)
	}
	if err := pd.Close(); !errors.Is(err, unix.EBUSY) || !errors.Is(err, failure.ErrInUse) || k.live != 2 || mem.held != 2 {
		t.Errorf("%v; %d MRs, held %d times", err, k.live, mem.held)
	}
	k.destroy = 0
	for range 2 {
		if err := pd.Close(); err != nil || k.live != 0 || mem.held != 0 {
			t.Errorf("%v; %d MRs, held %d times", err, k.live, mem.held)
		}
	}
}

type ownerOfNothing struct{ held int }

func (o *ownerOfNothing) Hold() (func(), error) {
	o.held++
	return func() { o.held-- }, nil
}
