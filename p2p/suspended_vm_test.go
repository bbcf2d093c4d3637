// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// amdgpu gives no peer-to-peer to an importer that attaches while the GPU sleeps, here one that
// pins: the buffer is staged. The prediction, which is direct for a GPU that is awake, is therefore
// unknown. xe wakes the GPU.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMSuspended(t *testing.T) {
	g := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	imp := testenv.TestImporter(t)
	m := machine.Open("")
	client := device(t, "edu0")
	i := drivers.Importer{PCI: &client, Kind: drivers.Pinned, PeerToPeer: true}
	power := filepath.Join("/sys/bus/pci/devices", g.PCI, "power")
	asleep := func() bool {
		text, err := os.ReadFile(filepath.Join(power, "runtime_status"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text)) == "suspended"
	}
	sleep := func() {
		t.Helper()
		for end := time.Now().Add(testenv.Limit(time.Minute)); !asleep(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the GPU does not sleep")
			}
		}
	}
	setFile(t, filepath.Join(power, "control"), "on")
	alloc, err := gpualloc.Open("drm:"+g.PCI+"/vram", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := alloc.Close(); err != nil {
			t.Error(err)
		}
	}()
	check := func(what, class string, want chain.Outcome, peer bool, place string) {
		t.Helper()
		g.Set(t, "behaviour", class)
		e, err := drivers.ExporterOf(m, machinetest.Addr(t, g.PCI))
		if err != nil {
			t.Fatal(err)
		}
		p := drivers.Predict(m, e, i)
		if p.Decision.Supported != placement.Yes || p.Outcome != want {
			t.Errorf("%s: predicted %v, want %v", what, p, want)
		}
		if said := strings.Contains(strings.Join(p.Why, "; "), "suspended"); said != (want == chain.OutcomeUnknown) {
			t.Errorf("%s: %q", what, p.Why)
		}
		buf, err := alloc.Alloc(t.Context(), rowSize, gpualloc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Close()
		b := buf.Segments()[0].Buf
		var a *testenv.Attachment
		if err := b.Do(func(fd int) (err error) {
			a, err = imp.Attach(client.String(), fd, testenv.PinnedImporter, i.PeerToPeer)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Map(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if where := g.Place(t, b.Inode()); a.Peer2Peer != peer || where != place {
			t.Errorf("%s: peer to peer %v, in %q; want %v, %q", what, a.Peer2Peer, where, peer, place)
		}
		if err := a.Detach(); err != nil {
			t.Error(err)
		}
	}
	check("awake", "amdgpu", chain.Direct, true, "vram")
	setFile(t, filepath.Join(power, "control"), "auto")
	sleep()
	check("asleep", "amdgpu", chain.OutcomeUnknown, false, "system")
	sleep()
	check("asleep", "xe", chain.Direct, true, "vram")
}
