// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// iommufd, which virtual machines get their devices' memory by, imports a BAR that
// vfio-pci exports. It is named, while it attaches and when a tracer finds it there, and
// is no MR's.
//
//testbed:machine fabric+EPYC+iommu
//testbed:kernel 7.3
func TestVMIOMMUFD(t *testing.T) {
	testenv.VM(t)
	const size = 1 << 20
	owner := pciOf(t, "gpu1")
	toVFIO(t, owner)
	dev := openVFIO(t, owner)
	if out, err := exec.Command("modprobe", "iommufd").CombinedOutput(); err != nil {
		t.Fatalf("modprobe iommufd (make vm-build builds it where Debian has none): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("modprobe", "-r", "iommufd").CombinedOutput(); err != nil {
			t.Errorf("modprobe -r iommufd: %v: %s", err, out)
		}
	})
	tr := open(t, mine())
	buf, err := dev.export(largestBAR(t, owner).Index, 0, size)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	ino := inodeOf(t, buf)
	space := newIOMMUSpace(t)
	if err := space.mapFile(int(buf.Fd()), size); err != nil {
		t.Fatalf("IOMMU_IOAS_MAP_FILE: %v: %v", err, lastFailure(t, tr, ino, Refused))
	}
	check := func(what string, tr *Tracer, call Call) {
		t.Helper()
		r := only(t, tr, ino)
		if r == nil {
			t.Fatalf("%s: no record", what)
		}
		t.Log(what, r)
		if r.Use != UseIOMMUFD || r.Call != call || r.Registration() || r.MR != nil || r.Importer.Module != "iommufd" {
			t.Errorf("%s: use %q, call %s, importer %+v", what, r.Use, r.Call, r.Importer)
		}
		if r.Placement.Memory == placement.PeerToPeer || r.Placement.Memory == placement.SystemMemory {
			t.Errorf("%s: it asks for no mapping of devices', and %v", what, r.Placement)
		}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if e := tr.join.find(placement.Key{Inode: ino}); e != nil {
			t.Errorf("%s: an MR is asked for, and %v answers", what, &e.rec)
		}
	}
	check("attached", tr, Attachment)
	later := mine()
	later.NoInventory = false
	check("found", open(t, later), Found)

	// A buffer that iommufd cannot import is refused, and the refusal names iommufd.
	other := alloc(t, "udmabuf", size)
	err = other.Segments()[0].Buf.Do(func(fd int) error { return space.mapFile(fd, size) })
	if err != unix.EOPNOTSUPP {
		t.Errorf("RAM, which iommufd does not import: %v", err)
	}
	if r := only(t, tr, inode(other)); r != nil {
		t.Errorf("refused, and lives: %v", r)
	}
	space.file.Close()
	if r := only(t, tr, ino); r != nil {
		t.Errorf("closed, and lives: %v", r)
	}
}
