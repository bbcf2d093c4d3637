// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// Usage is one dma-buf and the processes that hold it.
type Usage struct {
	Inode    uint64  `json:"inode"`              // the identity of the dma-buf on this machine
	Exporter string  `json:"exporter,omitempty"` // the exporter's name, which is not known where only mappings are left
	Name     string  `json:"name,omitempty"`     // the name that a program has given the dma-buf
	Size     int64   `json:"size"`               // the bytes; -1 where only mappings are left
	Count    int64   `json:"count"`              // how many references the kernel counts, its own among them; -1 if unknown
	Holders  []Owner `json:"holders"`            // the processes that hold it, by PID; none if only the kernel does
}

// Owner is a process with descriptors or mappings of a dma-buf.
type Owner struct {
	PID  int      `json:"pid"`            // the number of the process
	Comm string   `json:"comm"`           // the process's name, as /proc/PID/comm has it: at most 15 bytes
	FDs  []int    `json:"fds,omitempty"`  // its descriptors of the dma-buf
	Maps []Region `json:"maps,omitempty"` // its mappings of the dma-buf
}

// Region is a range of a process's address space.
type Region struct {
	Start uint64 `json:"start"` // the first address
	End   uint64 `json:"end"`   // the first address behind it
	// Offset is the offset in the buffer in bytes, as /proc/PID/maps shows it. DRM drivers put the
	// node's own offset there.
	Offset uint64 `json:"offset"`
	Prot   string `json:"prot"` // the protection as in /proc/PID/maps: "rw-s"
}

// Inventory lists the dma-bufs that processes hold by descriptor or mapping,
// by inode. proc is the root of procfs, "" for /proc; pid picks one process,
// 0 all of them.
//
// unreadable has an error for each process whose files could not be read, mostly
// for lack of privilege. If there is one, a buffer that the list lacks is unknown,
// not absent. A process that ended meanwhile is no error. Buffers that only the
// kernel holds (an MR whose descriptors are all closed) have no owner here:
// [KernelBufs] lists those. Inventory does not read descriptor tables that a
// thread keeps apart from its process (CLONE_FILES not set).
func Inventory(proc string, pid int) (usage []Usage, unreadable []error, err error) {
	if proc == "" {
		proc = "/proc"
	}
	pids := []int{pid}
	if pid == 0 {
		if pids, err = processes(proc); err != nil {
			return nil, nil, &failure.Error{Op: "list processes", Device: proc, Err: rootErrno(err)}
		}
	} else if _, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid))); err != nil {
		return nil, nil, &failure.Error{Op: "inspect", Device: fmt.Sprintf("process %d", pid), Detail: "no such process", Remedy: "name one that runs, in this PID namespace", Err: rootErrno(err)}
	}
	inv := inventory{bufs: map[uint64]*Usage{}}
	for _, p := range pids {
		inv.process(proc, p)
	}
	for _, u := range inv.bufs {
		sort.Slice(u.Holders, func(i, j int) bool { return u.Holders[i].PID < u.Holders[j].PID })
		usage = append(usage, *u)
	}
	sort.Slice(usage, func(i, j int) bool { return usage[i].Inode < usage[j].Inode })
	return usage, inv.unreadable, nil
}

// rootErrno reduces a path error to its errno, as Error.Device has the path.
func rootErrno(err error) error {
	var n unix.Errno
	if errors.As(err, &n) {
		return n
	}
	return err
}

func processes(proc string) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 {
			pids = append(pids, n)
		}
	}
	return pids, nil
}

type inventory struct {
	bufs       map[uint64]*Usage
	unreadable []error
}

// gone tells a process that ended from one that may not be looked at.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// trouble is what could not be read of one process.
type trouble struct {
	what  []string // "fd", "3 of fd", "maps"
	first error
}

func (t *trouble) add(what string, err error) {
	t.what = append(t.what, what)
	if t.first == nil {
		t.first = err
	}
}

func (t *trouble) error(dir string) error {
	e := &failure.Error{Op: "inspect", Device: dir, Detail: "cannot read " + strings.Join(t.what, " and "), Err: rootErrno(t.first)}
	if errors.Is(t.first, fs.ErrPermission) {
		e.Remedy = "run as root, or with CAP_SYS_PTRACE, to see other users' processes"
	}
	return e
}

func (inv *inventory) process(proc string, pid int) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	var t trouble
	inv.descriptors(dir, pid, &t)
	inv.mappings(dir, pid, &t)
	if t.first != nil {
		inv.unreadable = append(inv.unreadable, t.error(dir))
	}
}

func (inv *inventory) mappings(dir string, pid int, t *trouble) {
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		if !gone(err) {
			t.add("maps", err)
		}
		return
	}
	for _, m := range parseMaps(string(maps)) {
		u := inv.buf(m.inode)
		if u.Name == "" {
			u.Name = m.name
		}
		o := inv.owner(u, dir, pid)
		o.Maps = append(o.Maps, m.Region)
	}
}

func (inv *inventory) descriptors(dir string, pid int, t *trouble) {
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		if !gone(err) {
			t.add("fd", err)
		}
		return
	}
	failed := 0
	var first error
	for _, e := range fds {
		err := inv.descriptor(dir, e.Name(), pid)
		if err == nil || gone(err) {
			continue
		}
		failed++
		if first == nil {
			first = err
		}
	}
	if failed > 0 {
		t.add(fmt.Sprintf("%d of %d descriptors", failed, len(fds)), first)
	}
}

// descriptor looks at one entry of a process's fd directory.
func (inv *inventory) descriptor(dir, name string, pid int) error {
	n, err := strconv.Atoi(name)
	if err != nil {
		return nil
	}
	link, err := os.Readlink(filepath.Join(dir, "fd", name))
	if err != nil || !isDMABufPath(link) {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "fdinfo", name))
	if err != nil {
		return err
	}
	info, ok := parseFDInfo(string(text))
	if !ok {
		return nil // an ordinary file of that name
	}
	u := inv.buf(info.Inode)
	u.Exporter, u.Name, u.Size, u.Count = info.Exporter, info.Name, info.Size, info.Count
	o := inv.owner(u, dir, pid)
	o.FDs = append(o.FDs, n)
	slices.Sort(o.FDs)
	return nil
}

func (inv *inventory) buf(inode uint64) *Usage {
	u, ok := inv.bufs[inode]
	if !ok {
		u = &Usage{Inode: inode, Size: -1, Count: -1}
		inv.bufs[inode] = u
	}
	return u
}

func (inv *inventory) owner(u *Usage, dir string, pid int) *Owner {
	for i := range u.Holders {
		if u.Holders[i].PID == pid {
			return &u.Holders[i]
		}
	}
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		comm = nil // the process is ending; its buffers are still its own
	}
	u.Holders = append(u.Holders, Owner{PID: pid, Comm: strings.TrimSuffix(string(comm), "\n")})
	return &u.Holders[len(u.Holders)-1]
}

// isDMABufPath recognises dmabuffs_dname's "/dmabuf:NAME", and the
// "anon_inode:dmabuf" of kernels before 5.3.
func isDMABufPath(path string) bool {
	return strings.HasPrefix(path, "/dmabuf:") || path == "anon_inode:dmabuf"
}

// mapped is a line of /proc/PID/maps that belongs to a dma-buf.
type mapped struct {
	Region
	inode uint64
	name  string
}

// parseMaps picks the dma-bufs out of the text of /proc/PID/maps (proc(5)).
func parseMaps(text string) []mapped {
	var out []mapped
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 6)
		if len(fields) < 6 {
			continue
		}
		path := strings.TrimLeft(fields[5], " ")
		name, ok := strings.CutPrefix(path, "/dmabuf:")
		// The dma-buf file system has no device: its major number is 0.
		if !ok || !strings.HasPrefix(fields[3], "00:") {
			continue
		}
		from, to, ok := strings.Cut(fields[0], "-")
		if !ok {
			continue
		}
		m := mapped{name: unescapeMaps(name)}
		m.Prot = fields[1]
		var errs [4]error
		m.Start, errs[0] = strconv.ParseUint(from, 16, 64)
		m.End, errs[1] = strconv.ParseUint(to, 16, 64)
		m.Offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
		m.inode, errs[3] = strconv.ParseUint(fields[4], 10, 64)
		if errors.Join(errs[:]...) == nil {
			out = append(out, m)
		}
	}
	return out
}

// unescapeMaps undoes the one escape of maps: a line break is \012.
func unescapeMaps(s string) string { return strings.ReplaceAll(s, `\012`, "\n") }
