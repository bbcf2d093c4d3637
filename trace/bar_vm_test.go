// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// nonceSize is enough to be found by nothing else.
const nonceSize = 32

// gpuBuffer is memory of a software GPU with a nonce at its beginning.
type gpuBuffer struct {
	*gpualloc.Buffer
	gpu   testenv.SoftGPU
	nonce []byte
}

const truthSize = 256 << 10

// onGPU allocates in VRAM what behaves as asked.
func onGPU(t *testing.T, g testenv.SoftGPU, behaviour string) gpuBuffer {
	t.Helper()
	g.Set(t, "behaviour", behaviour)
	b := gpuBuffer{alloc(t, "drm:"+g.PCI+"/vram", truthSize), g, make([]byte, nonceSize)}
	rand.Read(b.nonce)
	if _, err := b.WriteAt(b.nonce, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// bar is a PCI function's largest BAR, as the CPU sees it.
type bar struct {
	index int
	start uint64
	mem   []byte
}

func largestBAR(t *testing.T, device string) pci.BAR {
	t.Helper()
	addr, err := pciaddr.Parse(device)
	if err != nil {
		t.Fatal(err)
	}
	largest, ok := pci.LargestBAR(sysfs.New(""), addr)
	if !ok {
		t.Fatalf("%s has no BAR", device)
	}
	return largest
}

func openBAR(t *testing.T, device string) bar {
	t.Helper()
	largest := largestBAR(t, device)
	best, size := bar{index: largest.Index, start: largest.Start}, largest.Size
	dir := filepath.Join("/sys/bus/pci/devices", device)
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("resource%d", best.index)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	best.mem, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(best.mem) })
	return best
}

// find looks for the beginning of a page.
func (b bar) find(nonce []byte) (offset uint64, found bool) {
	for at := 0; at < len(b.mem); at += os.Getpagesize() {
		if bytes.Equal(b.mem[at:at+len(nonce)], nonce) {
			return uint64(at), true
		}
	}
	return 0, false
}

// check compares a verdict with where the nonce is.
func (b bar) check(t *testing.T, what string, buf gpuBuffer, p placement.Placement) {
	t.Helper()
	at, found := b.find(buf.nonce)
	if !found {
		if p.Memory != placement.SystemMemory || p.Proof == placement.NoProof || p.Direct() != placement.No || placed(p) != truthSize {
			t.Errorf("%s: the bytes are not in the BAR, the verdict is %v: %+v", what, p, p.Places)
		}
		return
	}
	if p.Memory != placement.PeerToPeer || p.Proof == placement.NoProof || !p.GPU() || len(p.Places) != 1 {
		t.Errorf("%s: the bytes are in the BAR at %#x, the verdict is %v: %+v", what, at, p, p.Places)
		return
	}
	q := p.Places[0]
	if q.Device != buf.gpu.PCI || q.BAR != b.index || q.Low != b.start+at || q.High != b.start+at+truthSize || q.Bytes != truthSize {
		t.Errorf("%s: the bytes are in %s BAR %d at %#x, the verdict says %+v", what, buf.gpu.PCI, b.index, b.start+at, q)
	}
}

func placed(p placement.Placement) (n uint64) {
	for _, q := range p.Places {
		n += q.Bytes
	}
	return n
}

// pciOf is the PCI address of one of the machine's devices.
func pciOf(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks("/run/gpurdma/pci/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(dir)
}

// openNIC is a device's context and a PD.
func openNIC(t *testing.T, name string) device {
	t.Helper()
	nodes, _ := filepath.Glob("/sys/class/infiniband_verbs/uverbs*/ibdev")
	for _, n := range nodes {
		if text, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(text)) == name {
			return openUverbs(t, "/dev/infiniband/"+filepath.Base(filepath.Dir(n)))
		}
	}
	t.Fatalf("there is no %s among %v", name, nodes)
	return device{}
}

// only is the one record on a buffer that lives.
func only(t *testing.T, tr *Tracer, ino uint64) *Record {
	t.Helper()
	if err := tr.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	var found *Record
	for _, r := range tr.Records() {
		if r.Buffer != nil && r.Buffer.Inode == ino {
			if found != nil {
				t.Fatalf("two records on one buffer: %v, %v", found, &r)
			}
			found = &r
		}
	}
	return found
}
