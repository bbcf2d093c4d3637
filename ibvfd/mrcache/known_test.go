// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gpurdma/gpurdma/ibvfd"
)

func TestEntryIsALine(t *testing.T) {
	if e, b := unsafe.Sizeof(entry{}), unsafe.Sizeof(bucket{}); e != 64 || b != 64 {
		t.Errorf("an entry has %d bytes, a bucket %d: a hit waits for each line of 64", e, b)
	}
}

// What was dropped is never found, what is found is what was asked for, and of what
// is there little is not found, while it grows, and is emptied.
func TestKnown(t *testing.T) {
	var k known
	r := rand.New(rand.NewPCG(1, 2))
	there := map[*entry]bool{}
	var all []*entry
	for i := range 3000 {
		v := &view{inode: uint64(1 + r.IntN(1000)), pd: []*ibvfd.PD{pd1, pd2}[i%2], access: ibvfd.Access(i / 2 % 2)}
		e := &entry{view: v, pd: v.pd, access: v.access, start: 1 << 20, end: 2 << 20}
		if k.find(v.inode, e.pd, e.access, e.start, e.end) == nil {
			k.add(e)
			there[e] = true
			all = append(all, e)
		}
		if r.IntN(3) == 0 {
			out := all[r.IntN(len(all))]
			k.drop(out)
			delete(there, out)
		}
	}
	places := 0
	for i := range k.buckets {
		for at, e := range k.buckets[i].entries {
			if e == nil {
				continue
			}
			if places++; !there[e] || k.buckets[i].inodes[at] != e.view.inode {
				t.Errorf("inode %d is known, and not there", e.view.inode)
			}
		}
	}
	if places != k.used || places > 4*len(k.buckets) {
		t.Errorf("%d places of %d buckets are used, and %d counted", places, len(k.buckets), k.used)
	}
	found := 0
	for e := range there {
		switch other := k.find(e.view.inode, e.pd, e.access, e.start+1, e.end); {
		case other == e:
			found++
		case other != nil && (other.view.inode != e.view.inode || other.pd != e.pd || other.access != e.access):
			t.Errorf("inode %d: another's region", e.view.inode)
		}
		for what, other := range map[string]*entry{
			"buffer":     k.find(e.view.inode+5000, e.pd, e.access, e.start, e.end),
			"PD":         k.find(e.view.inode, new(ibvfd.PD), e.access, e.start, e.end),
			"access":     k.find(e.view.inode, e.pd, e.access+2, e.start, e.end),
			"start":      k.find(e.view.inode, e.pd, e.access, e.start-1, e.end),
			"larger end": k.find(e.view.inode, e.pd, e.access, e.start, e.end+1),
		} {
			if other != nil {
				t.Errorf("inode %d is found with another %s", e.view.inode, what)
			}
		}
	}
	if found != places || found < len(there)*9/10 {
		t.Errorf("%d of %d are found, and %d are there", found, len(there), places)
	}
	for e := range there {
		k.drop(e)
	}
	if k.used != 0 {
		t.Errorf("%d are left", k.used)
	}
}

// A cache whose buffers share a bucket, more than it has places for, hits them all,
// also when they have a second region and lose it.
func TestKnownOverflows(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 64, MaxBytes: 1 << 60})
	var bufs []*fakeBuf
	var shared *bucket
	for inode := uint64(1); len(bufs) < 9; inode++ {
		buf := &fakeBuf{inode: inode, size: size}
		if shared != nil && c.known.bucket(inode) != shared {
			continue
		}
		ref, err := c.get(pd1, buf, Range{0, 8, 0})
		if err != nil {
			t.Fatal(err)
		}
		ref.Release()
		shared = c.known.bucket(inode)
		bufs = append(bufs, buf)
	}
	if n := c.known.used; n != 4 {
		t.Errorf("%d of 9 buffers in a bucket of 4 are known", n)
	}
	hits := func(r Range) {
		t.Helper()
		before := c.Stats()
		for _, buf := range bufs {
			ref, err := c.get(pd1, buf, r)
			if err != nil {
				t.Fatal(err)
			}
			if ref.e.view.inode != buf.inode {
				t.Errorf("inode %d: a region of %d", buf.inode, ref.e.view.inode)
			}
			ref.Release()
		}
		if n := c.Stats().Hits - before.Hits; n != 9 {
			t.Errorf("%d of 9 are hits", n)
		}
	}
	hits(Range{2, 4, 0})
	for _, buf := range bufs {
		ref, err := c.get(pd1, buf, Range{16, 8, 0})
		if err != nil {
			t.Fatal(err)
		}
		ref.Release()
	}
	if n := c.known.used; n != 0 {
		t.Errorf("%d are known as the only region of a view that has two", n)
	}
	hits(Range{2, 4, 0})
	hits(Range{17, 4, 0})
	c.mu.Lock()
	err := c.flush(func(e *entry) bool { return e.start == 16 })
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	hits(Range{2, 4, 0})
	if n := c.known.used; n != 4 {
		t.Errorf("%d are known, of 9 in a bucket of 4, when each is its view's only region again", n)
	}
	for _, buf := range bufs {
		c.Invalidate(buf.inode)
	}
	if c.known.used != 0 || len(d.live) != 0 {
		t.Errorf("%d are known and %d live after all were invalidated", c.known.used, len(d.live))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
