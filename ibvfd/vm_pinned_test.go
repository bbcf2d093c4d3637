// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A GPU's buffer that the NIC beside the GPU has pinned in VRAM, and a NIC that does
// not reach the GPU: the error names the first NIC, by this process's registrations or
// by the kernel's list, and each of its remedies helps.
//
//testbed:machine fabric
//testbed:kernel 7.2
func TestVMPinnedForAnotherNIC(t *testing.T) {
	pd := openPD(t)
	c, err := ibvfd.Open(otherNIC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, c) })
	far, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, far) })
	for _, personality := range []string{"amdgpu", "xe"} {
		t.Run(personality, func(t *testing.T) {
			vram := testenv.GPUPlaces(t, personality)[0]
			testenv.SetImporter(t, otherNIC, "pinned")
			const size = 1 << 20
			buf, own := alloc(t, vram.Spec, size, gpualloc.Options{}), alloc(t, vram.Spec, size, gpualloc.Options{})
			attr := func(b *gpualloc.Buffer) ibvfd.MRAttr {
				return ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, b), Length: size, IOVA: 1 << 40, Access: allRemote, Owner: b}
			}
			pinned := func(t *testing.T, err error) {
				t.Helper()
				if err == nil {
					t.Fatal("registered")
				}
				e := asRegError(t, err)
				if e.Device != otherNIC || e.Errno != unix.EINVAL || e.Cause != fault.CausePinned || e.Earliest != fault.StageAttach || e.Latest != fault.StageMap {
					t.Errorf("%v, stages %v to %v", e, e.Earliest, e.Latest)
				}
				if !strings.Contains(e.Detail, "attached to "+nic+", too") || !strings.Contains(e.Remedy, "a buffer for each NIC") {
					t.Errorf("it says neither which NIC nor what to do: %v", e)
				}
			}
			register := func(pd *ibvfd.PD, a ibvfd.MRAttr) *ibvfd.MR {
				t.Helper()
				mr, err := pd.RegMR(a)
				if err != nil {
					t.Fatal(err)
				}
				return mr
			}

			first := register(pd, attr(buf))
			_, err := far.RegMR(attr(buf))
			pinned(t, err)
			closed(t, register(far, attr(own))) // a buffer of its own, in system memory
			closed(t, first)

			_, err = region.Register(region.Attr{
				Segments: []region.Segment{{Buf: segment(t, buf), Length: size}}, Length: size, IOVA: 1 << 40, Access: allRemote, Owner: buf,
			}, pd, far)
			pinned(t, err)

			// By a descriptor alone this process does not know the buffer: the kernel's
			// list has it.
			err = segment(t, buf).Do(func(fd int) error {
				first = register(pd, ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: fd, Length: size, IOVA: 1 << 40, Access: allRemote, SkipChecks: true})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = far.RegMR(attr(buf))
			pinned(t, err)
			closed(t, first)

			// With the first registration ended, the buffer moves.
			closed(t, register(far, attr(buf)))
		})
	}
}
