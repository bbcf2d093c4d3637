// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// tree unpacks a txtar archive, as testenv.Files writes files.
func tree(t *testing.T, archive string) string {
	t.Helper()
	files := map[string]string{}
	for _, f := range txtar.Parse([]byte(archive)).Files {
		files[f.Name] = string(f.Data)
	}
	return testenv.Files(t, files)
}

// Two processes share a buffer; one has a mapping only; a file is named like a
// dma-buf; a process is beyond our reach; a thread's entry is no process.
const procTree = `
-- 10/comm --
trainer
-- 10/fd/0 --
-> /dev/null
-- 10/fd/7 --
-> /dmabuf:weights
-- 10/fd/5 --
-> /dmabuf:weights
-- 10/fd/8 --
-> /dmabuf:a file
-- 10/fdinfo/5 --
pos:	0
flags:	02000002
ino:	100
size:	4096
count:	4
exp_name:	drm
name:	weights
-- 10/fdinfo/7 --
pos:	0
flags:	02000002
ino:	100
size:	4096
count:	4
exp_name:	drm
name:	weights
-- 10/fdinfo/8 --
pos:	0
flags:	02
ino:	5
-- 10/maps --
7efdb4409000-7efdb440a000 rw-s 00000000 00:0b 100                      /dmabuf:weights
-- 9/comm --
server
-- 9/fd/3 --
-> /dmabuf:weights
-- 9/fd/4 --
-> anon_inode:dmabuf
-- 9/fdinfo/3 --
flags:	02
ino:	100
size:	4096
count:	4
exp_name:	drm
name:	weights
-- 9/fdinfo/4 --
flags:	02
ino:	50
size:	8192
count:	1
exp_name:	udmabuf
-- 9/maps --
7efdb4409000-7efdb440a000 rw-s 00000000 00:0b 200                      /dmabuf:left
-- 11/comm --
secret
-- 11/fd --
this is no directory: it cannot be listed
-- 11/maps/x --
nor is this a file
-- self/comm --
not a number
-- meminfo --
MemTotal: 1 kB
`

func TestInventory(t *testing.T) {
	proc := tree(t, procTree)
	usage, unreadable, err := Inventory(proc, 0)
	if err != nil {
		t.Fatal(err)
	}
	region := Region{Start: 0x7efdb4409000, End: 0x7efdb440a000, Prot: "rw-s"}
	want := []Usage{
		{Inode: 50, Exporter: "udmabuf", Size: 8192, Count: 1, Holders: []Owner{{PID: 9, Comm: "server", FDs: []int{4}}}},
		{Inode: 100, Exporter: "drm", Name: "weights", Size: 4096, Count: 4, Holders: []Owner{
			{PID: 9, Comm: "server", FDs: []int{3}},
			{PID: 10, Comm: "trainer", FDs: []int{5, 7}, Maps: []Region{region}},
		}},
		{Inode: 200, Name: "left", Size: -1, Count: -1, Holders: []Owner{{PID: 9, Comm: "server", Maps: []Region{region}}}},
	}
	if d := cmp.Diff(want, usage); d != "" {
		t.Error(d)
	}
	if len(unreadable) != 1 || !errors.Is(unreadable[0], unix.ENOTDIR) {
		t.Fatalf("unreadable: %v; want one error, of process 11", unreadable)
	}
	contains(t, unreadable[0], "/11: cannot read fd and maps: ENOTDIR")
	one, unreadable, err := Inventory(proc, 9)
	if err != nil || len(unreadable) > 0 || len(one) != 3 || len(one[1].Holders) != 1 {
		t.Errorf("process 9: %+v, %v, %v", one, unreadable, err)
	}
	if _, _, err := Inventory(proc, 12); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "process 12") {
		t.Errorf("process 12: %v", err)
	}
	if _, _, err := Inventory(filepath.Join(proc, "none"), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no procfs: %v", err)
	}
}

// A fdinfo that cannot be read makes the buffer unknown, and says so.
func TestInventoryUnreadableFDInfo(t *testing.T) {
	proc := tree(t, `
-- 10/fd/7 --
-> /dmabuf:
-- 10/fd/8 --
-> /dmabuf:
-- 10/fd/9 --
-> /dev/null
-- 10/fdinfo/7/x --
a directory
-- 10/fdinfo/8/x --
a directory
-- 10/maps --
`)
	usage, unreadable, err := Inventory(proc, 0)
	if err != nil || len(usage) != 0 || len(unreadable) != 1 || !strings.Contains(unreadable[0].Error(), "2 of 3 descriptors") {
		t.Errorf("%+v, %v, %v", usage, unreadable, err)
	}
}

func TestInventoryOfThisSystem(t *testing.T) {
	_, unreadable, err := Inventory("", os.Getpid())
	if err != nil || len(unreadable) > 0 {
		t.Errorf("our own process: %v, %v", unreadable, err)
	}
}

func TestKernelBufs(t *testing.T) {
	debugfs := tree(t, "-- dma_buf/bufinfo --\n"+bufinfoText)
	got, err := KernelBufs(debugfs)
	if err != nil || len(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := KernelBufs(filepath.Join(debugfs, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no debugfs: %v", err)
	}
}
