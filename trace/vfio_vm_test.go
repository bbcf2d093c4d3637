// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// toVFIO gives a function to vfio-pci until the test is over.
func toVFIO(t *testing.T, function string) {
	t.Helper()
	if out, err := exec.Command("modprobe", "-a", "vfio-pci", "vfio_iommu_type1").CombinedOutput(); err != nil {
		t.Fatalf("modprobe vfio-pci: %v: %s", err, out)
	}
	driveBy(t, "vfio-pci", function)
}

// driveBy gives a function to a driver until the test is over.
func driveBy(t *testing.T, driver, function string) {
	t.Helper()
	dir := filepath.Join("/sys/bus/pci/devices", function)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "driver/unbind"), []byte(function), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	write(filepath.Join(dir, "driver_override"), driver)
	write("/sys/bus/pci/drivers_probe", function)
	t.Cleanup(func() {
		write(filepath.Join(dir, "driver/unbind"), function)
		write(filepath.Join(dir, "driver_override"), "\n")
	})
}

// The real vfio-pci exports a BAR: the bytes that the DMA engine of the importing device
// writes through the mapping are in the BAR, at the place that the verdict names.
//
//testbed:machine fabric+EPYC+iommu
//testbed:kernel 7.2
func TestVMVFIO(t *testing.T) {
	testenv.VM(t)
	const at, size = 1 << 20, truthSize
	owner := pciOf(t, "gpu1")
	toVFIO(t, owner)
	dev := openVFIO(t, owner)
	imp := testenv.TestImporter(t)
	tr := open(t, mine())
	view := dev.view(t, largestBAR(t, owner))
	buf, err := dev.export(view.index, at, size)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	ino := inodeOf(t, buf)

	a, err := imp.Attach(pciOf(t, "edu1"), int(buf.Fd()), testenv.DynamicImporter, true)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	defer func() {
		if err := a.Detach(); err != nil {
			t.Error(err)
		}
		if r := only(t, tr, ino); r != nil {
			t.Errorf("detached, and lives: %v", r)
		}
	}()
	if _, err := a.Map(); err != nil {
		t.Fatalf("map: %v: %v", err, lastFailure(t, tr, ino, MapRefused))
	}
	found, ok := view.find(nonceAt(t, a, 0))
	if !ok || found != at {
		t.Errorf("the engine's bytes are at %#x of the BAR (found: %v), want %#x", found, ok, at)
	}
	check := func(what string, p placement.Placement) {
		t.Helper()
		if p.Memory != placement.PeerToPeer || p.Proof != placement.PhysicalAddress || p.Direct() != placement.Yes || p.Route != placement.ThroughRootComplex || len(p.Places) != 1 {
			t.Errorf("%s: %v by %v, direct %v: %s", what, p, p.Proof, p.Direct(), p.RouteReason)
			return
		}
		if q := p.Places[0]; q.Device != owner || q.BAR != view.index || q.Low != view.start+found || q.Bytes != size {
			t.Errorf("%s: the bytes are in %s BAR %d at %#x, the verdict says %+v", what, owner, view.index, view.start+found, q)
		}
	}
	r := only(t, tr, ino)
	if r == nil {
		t.Fatal("no record")
	}
	t.Log(r)
	if r.Buffer.Driver != "vfio_pci_core" || r.Buffer.Size != size || r.Importer.IOMMU != "IOMMU" {
		t.Errorf("buffer %+v, importer %+v", r.Buffer, r.Importer)
	}
	check("mapped", r.Placement)

	// With its memory turned off the device revokes the buffer.
	dev.decode(t, false)
	if r := only(t, tr, ino); r.Moves == 0 || r.Placement.Memory != placement.Stale && r.Placement.Memory != placement.NotMapped {
		t.Errorf("after %d moves: %v", r.Moves, r.Placement)
	}
	if _, err := a.Map(); err != unix.ENODEV {
		t.Errorf("map of a revoked buffer: %v", err)
	}
	f := lastFailure(t, tr, ino, MapRefused)
	if f.Errno != unix.ENODEV || f.Stage != StageMap {
		t.Errorf("%+v", f)
	}
	dev.decode(t, true)
	if _, err := a.Map(); err != nil {
		t.Fatal(err)
	}
	check("mapped again", only(t, tr, ino).Placement)

	// vfio-pci wants an importer that can be told, and is peer to peer.
	if _, err := imp.Attach(testenv.SoftDevice, int(buf.Fd()), testenv.DynamicImporter, false); err != unix.EOPNOTSUPP {
		t.Errorf("an importer without peer-to-peer: %v", err)
	}
	f = lastFailure(t, tr, ino, Refused)
	if f.Stage != StageAttach || f.Function != "vfio_pci_dma_buf_attach" {
		t.Errorf("%+v", f)
	}
}
