// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Processors, and what /boot/config has.
const (
	epyc       = testenv.EPYC
	bulldoz    = testenv.Bulldozer
	hygon      = testenv.Hygon
	xeon       = testenv.Xeon
	grace      = testenv.Grace
	withP2P    = testenv.WithP2PDMA
	withoutP2P = testenv.WithoutP2PDMA
)

// fixture is a machine to be written below a directory.
type fixture struct {
	release, config, cpu, tree string
	files, links               map[string]string
}

func (f fixture) open(t *testing.T) *Machine {
	t.Helper()
	return Open(testenv.Tree{Release: f.release, Config: f.config, CPU: f.cpu, Functions: f.tree, Files: f.files, Links: f.links}.Write(t))
}

func addr(t *testing.T, s string) Addr {
	t.Helper()
	a, err := ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// client is nil for "".
func client(t *testing.T, s string) *Addr {
	if s == "" {
		return nil
	}
	a := addr(t, s)
	return &a
}

// overlayRoot is the root of a container's image.
const overlayRoot = "24 1 0:22 / / rw - overlay overlay rw,lowerdir=/x\n25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=131072000k"
