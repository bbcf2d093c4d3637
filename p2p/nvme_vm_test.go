// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// virtualFunctions turns on those of nvme2. No driver takes them: QEMU's have no
// queues until they are given some.
func virtualFunctions(t *testing.T) {
	t.Helper()
	dir := "/sys/bus/pci/devices/" + device(t, "nvme2").String() + "/"
	put := func(name, text string) {
		if err := os.WriteFile(dir+name, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	put("sriov_drivers_autoprobe", "0")
	put("sriov_numvfs", "2")
	t.Cleanup(func() { put("sriov_numvfs", "0") })
}

// nvmes lets controllers read from their disks into the memory of others. Where the
// kernel decides for it the data arrives, else the read is refused. By bus address
// below an IOMMU that translates it fails without a word to the reader: QEMU's
// switch hands the request to the IOMMU, which blocks it and says so in the log.
func (b bench) nvmes(t *testing.T) {
	for _, memory := range []string{"nvme0", "nvme4"} {
		provider := device(t, memory)
		for _, name := range []string{"nvme1", "nvme3", "nvme5"} {
			reader := device(t, name)
			d := p2pdma.Decide(b.m, provider, &reader)
			what := name + " into the memory of " + memory
			if err := os.WriteFile("/dev/kmsg", []byte(what+"\n"), 0); err != nil {
				t.Fatal(err)
			}
			err := readInto(t, provider, reader)
			want := map[placement.Answer]error{placement.Yes: nil, placement.No: unix.EINVAL}[d.Supported]
			kind := "NVMe " + d.Type.String()
			if tr, _ := b.m.TranslationOf(&reader); d.Type == p2pdma.MapBusAddress && tr == machine.Translated {
				want, kind = errOtherData, kind+", blocked"
				for end := time.Now().Add(testenv.Limit(10 * time.Second)); b.blocked(t, reader, what) == 0 && time.Now().Before(end); {
					time.Sleep(10 * time.Millisecond) // the IOMMU tells by an interrupt
				}
			}
			if d.Supported == placement.AnswerUnknown || !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v; predicted %v", what, err, want, d)
			}
			if n := b.blocked(t, reader, what); (n > 0) != (want == errOtherData) {
				t.Errorf("%s: %d faults of the IOMMU; predicted %v", what, n, d)
			}
			t.Logf("%s: %v, as predicted: %v", what, err, d)
			b.seen.add(kind)
		}
	}
	root := map[placement.Answer]string{placement.Yes: "NVMe through the host bridge", placement.No: "NVMe not supported"}[b.m.CPU.Routes()]
	if b.seen.n["NVMe bus address"]+b.seen.n["NVMe bus address, blocked"] == 0 || b.seen.n[root] == 0 {
		t.Errorf("reads: %v", b.seen.n)
	}
}

// blocked counts the transfers of a function that the IOMMU has blocked since a line
// was written to the log, by what ISO-FAULTS looks for.
func (b bench) blocked(t *testing.T, a pciaddr.Addr, since string) int {
	t.Helper()
	log := b.m.KernelLog()
	if log.Err != nil {
		t.Fatal(log.Err)
	}
	n := 0
	for _, line := range slices.Backward(log.Lines) {
		if strings.Contains(line, since) {
			return n
		}
		of, err := pciaddr.Parse(PCIAddress.FindString(line))
		if err == nil && of == a && slices.ContainsFunc(Patterns, func(p Pattern) bool { return p.Check == "ISO-FAULTS" && p.Match.MatchString(line) }) {
			n++
		}
	}
	t.Fatalf("%q is not in the kernel's log any more", since)
	return n
}

// errOtherData is of a read that succeeds and brings something else.
var errOtherData = errors.New("not what is on the disk")

// readInto writes a page to a controller's disk, and lets it read that into the
// memory of another controller.
func readInto(t *testing.T, provider, reader pciaddr.Addr) (err error) {
	t.Helper()
	disks, _ := filepath.Glob("/sys/bus/pci/devices/" + reader.String() + "/nvme/nvme*/nvme*n1")
	if len(disks) != 1 {
		t.Fatalf("disks of %v: %v", reader, disks)
	}
	disk, err := os.OpenFile("/dev/"+filepath.Base(disks[0]), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	size := os.Getpagesize()
	page := mapped(t, -1, size, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	rand.Read(page)
	if _, err := disk.WriteAt(page, int64(size)); err != nil {
		t.Fatal(err)
	}
	memory, err := os.OpenFile("/sys/bus/pci/devices/"+provider.String()+"/p2pmem/allocate", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	peer := mapped(t, int(memory.Fd()), size, unix.MAP_SHARED)
	clear(peer)
	if n, err := disk.ReadAt(peer, int64(size)); err != nil || n != size {
		return err
	}
	if !bytes.Equal(peer, page) {
		return errOtherData
	}
	return nil
}

func mapped(t *testing.T, fd, size, flags int) []byte {
	t.Helper()
	data, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(data); err != nil {
			t.Error(err)
		}
	})
	return data
}
