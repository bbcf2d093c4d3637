// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/inventory"
)

// existedBit is set in the identities of attachments that existed before the tracer.
const existedBit = 1 << 63

// inventory looks for attachments that exist already. The tracer follows them from now on.
// Facts that the kernel does not keep stay unknown: up to 6.12 an attachment keeps its scatter
// table, which the inventory reads; on later kernels it keeps none.
func (t *Tracer) inventory() {
	var found []*abi.Record
	look, err := t.loader.OpenLister()
	if err == nil {
		defer look.Close()
		found, err = inventory.Passes(look.Pass)
	}
	whole := err == nil
	if err != nil {
		t.unread = append(t.unread, &failure.Error{Op: "inventory", Device: "BPF iterator", Err: err})
	}
	pids := t.cfg.PIDs
	if t.cfg.Self { // as procfs knows it
		pids = append(slices.Clone(pids), os.Getpid())
	}
	mine := t.ownedBy(pids)
	mrs, err := inventory.ListMRs(t.cfg.Sys)
	if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) { // without ib_core there are none
		t.unread = append(t.unread, &failure.Error{Op: "inventory", Device: "rdma netlink", Err: err})
	}
	seen := map[uint64]bool{} // attachments
	bufs := map[uint64]bool{} // inodes
	n := uint64(0)
	if t.cfg.listed != nil {
		t.cfg.listed()
	}
	var followed []*abi.Record
	for _, w := range found {
		bufs[w.Inode] = true
		if w.Have&abi.HaveAttach == 0 || seen[w.Attach] || !mine(w.Inode) {
			continue
		}
		seen[w.Attach] = true
		n++
		w.Head.ID = existedBit | n
		follow, err := t.loader.Follow(w)
		if err != nil {
			t.unread = append(t.unread, &failure.Error{Op: "inventory", Device: fmt.Sprintf("dma-buf %d", w.Inode), Err: err})
			continue
		}
		if follow {
			followed = append(followed, w)
		}
	}
	for _, w := range t.stillThere(look, followed, whole) {
		t.join.record(w)
		t.join.note(w.Head.ID, mrs)
	}
	t.kernelBufs(bufs, mine, mrs, n, whole)
	t.queue = append(t.queue, t.join.take()...)
}

// kernelBufs adds the buffers that only debugfs shows: those that no descriptor leads
// to, as an MR keeps its buffer after the descriptor was closed. n records have
// identities already. whole: known has all buffers that descriptors lead to.
func (t *Tracer) kernelBufs(known map[uint64]bool, mine func(inode uint64) bool, mrs inventory.MRs, n uint64, whole bool) {
	why := "no descriptor leads to it"
	if !whole {
		why = "the list of what descriptors lead to could not be read to its end"
	}
	list, err := dmabuf.KernelBufs(t.cfg.Debug)
	if err != nil {
		t.unread = append(t.unread, err)
		return
	}
	for _, b := range list {
		if known[b.Inode] || !mine(b.Inode) {
			continue
		}
		for _, device := range b.Attached {
			n++
			r := Record{
				ID: existedBit | n, Call: Found, FD: -1, Existed: true, Steps: []Step{},
				Buffer:   &Buffer{Inode: b.Inode, Size: uint64(b.Size), Exporter: b.Exporter, NIC: b.Exporter == nicExporter},
				Importer: &Importer{Device: device},
				Incomplete: []string{
					"known from debugfs only: " + why + ", so its mapping and its end cannot be seen",
				},
			}
			if addr, err := pciaddr.Parse(device); err == nil {
				r.Importer.PCI, r.Importer.IsPCI = addr.String(), true
			}
			if s := mrOf(&r, mrs); s != "" {
				r.Incomplete = append(r.Incomplete, s)
			}
			e := &entry{rec: r}
			e.in.Preexisting = true
			t.join.emit(Existing, uint64(time.Since(t.join.conv.boot)), e)
		}
	}
}

// ownedBy picks buffers by the filters on inodes and processes. The kernel does not
// record which process attached a buffer. One of pids may have done so if it holds the
// buffer, or if no process holds it any more. In a container the tracer cannot see that no
// process holds a buffer, since processes outside the container are hidden from it.
func (t *Tracer) ownedBy(pids []int) func(inode uint64) bool {
	holds := map[uint64]bool{} // whether one of pids is among a buffer's holders
	if len(pids) > 0 {
		list, _, err := dmabuf.Inventory(t.cfg.Proc, 0)
		if err != nil {
			t.unread = append(t.unread, err)
		}
		for _, u := range list {
			holds[u.Inode] = slices.ContainsFunc(u.Holders, func(o dmabuf.Owner) bool { return slices.Contains(pids, o.PID) })
		}
	}
	orphans := len(pids) == 0 || !Namespaced(t.cfg.Proc)
	return func(inode uint64) bool {
		mine, held := holds[inode]
		return (mine || !held && orphans) && (len(t.cfg.Inodes) == 0 || slices.Contains(t.cfg.Inodes, inode))
	}
}
