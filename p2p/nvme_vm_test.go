// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

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

// nvmes lets controllers read from their disks into the memory of another one.
// Where the kernel decides for it the data arrives, else the read is refused.
func (b bench) nvmes(t *testing.T) {
	provider := device(t, "nvme0")
	for _, name := range []string{"nvme1", "nvme3"} {
		reader := device(t, name)
		d := b.m.Decide(provider, &reader)
		if tr, _ := b.m.translationOf(&reader); d.Type == MapBusAddress && tr == translated {
			t.Logf("%s: by bus address, which QEMU's switch hands to the IOMMU", name)
			continue
		}
		err := readInto(t, provider, reader)
		want := map[placement.Answer]error{placement.Yes: nil, placement.No: unix.EINVAL}[d.Supported]
		if d.Supported == placement.AnswerUnknown || !errors.Is(err, want) {
			t.Errorf("%s into the memory of nvme0: %v; predicted %v", name, err, d)
		}
		t.Logf("%s into the memory of nvme0: %v, as predicted: %v", name, err, d)
	}
}

// errOtherData is of a read that succeeds and brings something else.
var errOtherData = errors.New("not what is on the disk")

// readInto writes a page to a controller's disk, and lets it read that into the
// memory of another controller.
func readInto(t *testing.T, provider, reader Addr) (err error) {
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
