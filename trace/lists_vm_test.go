// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// listRow is a scatter list that an importing device gets.
type listRow struct {
	list   testenv.ScatterList
	dev    string
	memory placement.Memory
	proof  placement.Proof
	// unreachable: the device cannot use these addresses, whatever they prove
	unreachable bool
}

// beyondBridge reports a list that the kernel maps for the device only where it lets
// peer-to-peer pass the host bridge.
func (row listRow) beyondBridge() bool {
	return row.dev == "edu1" && (row.list == testenv.P2PMem || row.list == testenv.HalvesP2PMem)
}

var listRows = []listRow{
	{list: testenv.PlainList, dev: "edu0", memory: placement.SystemMemory, proof: placement.StructPage},
	{list: testenv.NoPages, dev: "edu0", memory: placement.SystemMemory, proof: placement.DMAAddress},
	{list: testenv.InBAR, dev: "edu0", memory: placement.PeerToPeer, proof: placement.DMAAddress},
	{list: testenv.InBAR, dev: "edu1", memory: placement.PeerToPeer, proof: placement.DMAAddress},
	{list: testenv.Halves, dev: "edu0", memory: placement.Mixed, proof: placement.DMAAddress},
	{list: testenv.HalvesByDMA, dev: "edu1", memory: placement.Mixed, proof: placement.PhysicalAddress},
}

// The kernel's own choice between a switch and the host bridge.
var p2pMemRows = []listRow{
	{list: testenv.P2PMem, dev: "edu0", memory: placement.PeerToPeer, proof: placement.BusAddress},
	{list: testenv.P2PMem, dev: "edu1", memory: placement.PeerToPeer, proof: placement.StructPage},
	{list: testenv.HalvesP2PMem, dev: "edu0", memory: placement.Mixed, proof: placement.StructPage},
	{list: testenv.HalvesP2PMem, dev: "edu1", memory: placement.Mixed, proof: placement.StructPage},
}

// Where all that a device sees is an IOVA, addresses of a BAR that did not go
// through the DMA API lead nowhere, and QEMU's switches send what should stay below
// them to the IOMMU.
var translatedRows = []listRow{
	{list: testenv.PlainList, dev: "edu0", memory: placement.SystemMemory, proof: placement.StructPage},
	{list: testenv.NoPages, dev: "edu0", memory: placement.Unknown},
	{list: testenv.InBAR, dev: "edu1", memory: placement.Unknown, unreachable: true},
	{list: testenv.Halves, dev: "edu1", memory: placement.Unknown, unreachable: true},
	{list: testenv.HalvesByDMA, dev: "edu1", memory: placement.Mixed, proof: placement.PhysicalAddress},
	{list: testenv.P2PMem, dev: "edu0", memory: placement.PeerToPeer, proof: placement.BusAddress, unreachable: true},
	{list: testenv.HalvesP2PMem, dev: "edu0", memory: placement.Mixed, proof: placement.StructPage, unreachable: true},
	{list: testenv.P2PMem, dev: "edu1", memory: placement.PeerToPeer, proof: placement.StructPage},
	{list: testenv.HalvesP2PMem, dev: "edu1", memory: placement.Mixed, proof: placement.StructPage},
}

// Scatter lists that no driver of the testbed makes: the bytes that the importing device
// writes are where the verdict says.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMScatterLists(t *testing.T) {
	rows := listRows
	if testenv.AtLeast(t, "7.2") { // Debian's 6.12 has no PCI_P2PDMA
		rows = append(rows[:len(rows):len(rows)], p2pMemRows...)
	}
	scatterLists(t, rows)
}

//testbed:machine fabric+EPYC+iommu
//testbed:machine-arm64 fabric+iommu
//testbed:kernel 7.2
func TestVMScatterListsTranslated(t *testing.T) { scatterLists(t, translatedRows) }

func scatterLists(t *testing.T, rows []listRow) {
	testenv.VM(t)
	gpu := pciOf(t, "gpu0")
	x := testenv.TestExporter(t, gpu, largestBAR(t, gpu).Index)
	imp := testenv.TestImporter(t)
	tr := open(t, mine())
	// A BAR decodes while a buffer of it lives.
	keep, err := x.Create(testenv.InBAR, truthSize)
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	view := openBAR(t, gpu)
	if bytes.Equal(view.mem[:8], bytes.Repeat([]byte{0xff}, 8)) {
		t.Fatal("the BAR does not decode")
	}
	for _, row := range rows {
		t.Run(row.list.String()+" "+row.dev, func(t *testing.T) {
			buf, err := x.Create(row.list, truthSize)
			if err != nil {
				t.Fatal(err)
			}
			defer buf.Close()
			row.check(t, tr, imp, buf, view, gpu)
		})
	}
}

// A BAR is a GPU's if that is a display controller, whatever drives it.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMDisplayBAR(t *testing.T) {
	testenv.VM(t)
	display := pciOf(t, "gpu2")
	largest := largestBAR(t, display)
	x, imp := testenv.TestExporter(t, display, largest.Index), testenv.TestImporter(t)
	tr := open(t, mine())
	buf, err := x.Create(testenv.InBAR, truthSize)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	a, err := imp.Attach(pciOf(t, "edu1"), int(buf.Fd()), testenv.DynamicImporter, true)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := mapped(t, tr, a, buf)
	p := r.Placement
	if p.Memory != placement.PeerToPeer || !p.GPU() || len(p.Places) != 1 {
		t.Fatalf("%v: %+v", p, p.Places)
	}
	if q := p.Places[0]; q.Device != display || q.BAR != largest.Index || !q.GPU || q.Low != largest.Start || q.Bytes != truthSize {
		t.Errorf("%+v, the memory is %s's: %+v", q, display, largest)
	}
}

// mapped maps an attachment, until the test is over, and answers with the record of
// it and what the importer sees.
func mapped(t *testing.T, tr *Tracer, a *testenv.Attachment, buf *os.File) (*Record, []testenv.ImporterSegment) {
	t.Helper()
	t.Cleanup(func() {
		if err := a.Detach(); err != nil {
			t.Error(err)
		}
	})
	segments, err := a.Map()
	if err != nil {
		t.Fatalf("map: %v", err)
	}
	r := only(t, tr, inodeOf(t, buf))
	if r == nil {
		t.Fatal("no record")
	}
	return r, segments
}

func inodeOf(t *testing.T, f *os.File) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// nonceAt lets the device write to the buffer.
func nonceAt(t *testing.T, a *testenv.Attachment, offset uint64) []byte {
	t.Helper()
	nonce := make([]byte, nonceSize)
	rand.Read(nonce)
	if err := a.Write(nonce, offset); err != nil {
		t.Fatal(err)
	}
	return nonce
}

// ramOf is the RAM of a buffer as the CPU sees it.
func ramOf(t *testing.T, buf *os.File, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(int(buf.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

func (row listRow) check(t *testing.T, tr *Tracer, imp *testenv.Importer, buf *os.File, view bar, gpu string) {
	a, err := imp.Attach(pciOf(t, row.dev), int(buf.Fd()), testenv.DynamicImporter, true)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	if row.beyondBridge() && runtime.GOARCH == "arm64" {
		// There no processor has the kernel let peer-to-peer pass QEMU's host bridge.
		if _, err := a.Map(); !errors.Is(err, unix.EREMOTEIO) {
			t.Errorf("map: %v, want EREMOTEIO", err)
		}
		if err := a.Detach(); err != nil {
			t.Error(err)
		}
		return
	}
	r, _ := mapped(t, tr, a, buf)
	p := r.Placement
	t.Log(r)
	if p.Memory != row.memory || p.Proof != row.proof {
		t.Fatalf("%v by %v (%s), want %v by %v", p, p.Proof, p.Reason, row.memory, row.proof)
	}
	ram := truthSize // bytes of the buffer's beginning that are in RAM
	switch row.list {
	case testenv.InBAR, testenv.P2PMem:
		ram = 0
	case testenv.Halves, testenv.HalvesByDMA, testenv.HalvesP2PMem:
		ram /= 2
	}
	byKind := map[placement.Kind]uint64{}
	behind := uint64(0) // where the BAR's part is, by the verdict
	for _, q := range p.Places {
		byKind[q.Kind] += q.Bytes
		if q.Kind == placement.KindBAR {
			behind = q.Low
			// A memory device that no driver makes a GPU of is none.
			if q.Device != gpu || q.BAR != view.index || q.GPU || p.GPU() {
				t.Errorf("behind %s BAR %d, the memory is %s's: %+v", q.Device, q.BAR, gpu, q)
			}
		}
	}
	if p.Memory != placement.Unknown && (byKind[placement.KindRAM] != uint64(ram) || byKind[placement.KindBAR] != uint64(truthSize-ram)) {
		t.Errorf("%d bytes of RAM of %d: %+v", ram, truthSize, p.Places)
	}
	if row.unreachable {
		return
	}
	if ram > 0 {
		mem, nonce := ramOf(t, buf, ram), nonceAt(t, a, 0)
		if !bytes.Equal(mem[:nonceSize], nonce) {
			t.Errorf("what the device wrote is not in RAM: %x", mem[:nonceSize])
		}
		if at, found := view.find(nonce); found {
			t.Errorf("what the device wrote to RAM is in the BAR, at %#x", at)
		}
	}
	if ram < truthSize {
		at, found := view.find(nonceAt(t, a, uint64(ram)))
		if !found || behind != view.start+at {
			t.Errorf("what the device wrote is in the BAR: %v, at %#x; the verdict says %#x", found, view.start+at, behind)
		}
	}
}

// The DMA API copies the bytes of a device that does not reach all of RAM. They are in the
// buffer's memory only after the driver has synchronized it for the CPU.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMBounced(t *testing.T) {
	testenv.VM(t)
	x, imp := testenv.TestExporter(t, "", 0), testenv.TestImporter(t)
	tr := open(t, mine())
	// The second node's memory ends beyond 4 GiB, and is given from the end on.
	var buf *os.File
	onNode(t, 1, func() {
		var err error
		if buf, err = x.Create(testenv.PlainList, truthSize); err != nil {
			t.Fatal(err)
		}
	})
	defer buf.Close()
	a, err := imp.Attach32(pciOf(t, "edu0"), int(buf.Fd()))
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	r, segments := mapped(t, tr, a, buf)
	p := r.Placement
	t.Log(r)
	displaced, offset := uint64(0), uint64(0) // of an entry that bounces
	for at, i := uint64(0), 0; i < len(segments); i++ {
		if s := segments[i]; s.Flags&testenv.SegmentPage != 0 && s.Phys != s.Addr {
			displaced += s.Length
			offset = at
		}
		at += segments[i].Length
	}
	if displaced == 0 {
		t.Fatalf("all of the buffer lies below 4 GiB: %+v", segments[:3])
	}
	if nonce := nonceAt(t, a, offset); bytes.Equal(ramOf(t, buf, truthSize)[offset:offset+nonceSize], nonce) {
		t.Error("nothing bounced: the device's bytes are in the buffer at once")
	}
	if p.Memory != placement.Bounced || p.Direct() != placement.No || p.Evidence.Displaced != displaced {
		t.Errorf("%v, direct %v, %d bytes displaced, not %d", p, p.Direct(), p.Evidence.Displaced, displaced)
	}
	mustHave(t, p.Reason, "no IOMMU translates")
}
