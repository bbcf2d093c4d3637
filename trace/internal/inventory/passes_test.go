// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// crowd are buffers with the addresses of their attachments, by inode.
type crowd map[uint64][]uint64

func numbered(n int) (list []uint64) {
	for i := range n {
		list = append(list, uint64(i+1))
	}
	return list
}

// list answers as the iterator's program does. Every buffer is seen through two
// descriptors.
func (c crowd) list(first uint32) (out []*abi.Record, err error) {
	for inode := uint64(1); inode <= uint64(len(c)); inode++ {
		all := c[inode]
		for range 2 {
			if first > 0 && len(all) <= int(first) {
				continue
			}
			for _, a := range all[first:min(len(all), int(first)+atOnce)] {
				out = append(out, &abi.Record{Inode: inode, Attach: inode<<32 | a, Have: abi.HaveBuf | abi.HaveAttach})
			}
			out = append(out, &abi.Record{Inode: inode, Have: abi.HaveBuf, NOthers: uint32(len(all))})
		}
	}
	return out, nil
}

func (c crowd) seen(all []*abi.Record) string {
	got := crowd{}
	for _, w := range all {
		if a := w.Attach & (1<<32 - 1); w.Have&abi.HaveAttach != 0 && !slices.Contains(got[w.Inode], a) {
			got[w.Inode] = append(got[w.Inode], a)
		}
	}
	text := ""
	for inode := uint64(1); inode <= uint64(len(c)); inode++ {
		slices.Sort(got[inode])
		text += fmt.Sprintln(got[inode])
	}
	return text
}

func (c crowd) want(t *testing.T, all []*abi.Record, err error) {
	t.Helper()
	want := ""
	for inode := uint64(1); inode <= uint64(len(c)); inode++ {
		want += fmt.Sprintln(c[inode][:min(len(c[inode]), MaxAttachments)])
	}
	if got := c.seen(all); err != nil || got != want {
		t.Errorf("listed\n%s(%v), want\n%s", got, err, want)
	}
}

// Every attachment is listed, however many a buffer has.
func TestPasses(t *testing.T) {
	var c crowd
	counted := func(first uint32) ([]*abi.Record, error) {
		out, err := c.list(first)
		n := map[uint64]int{}
		for _, w := range out {
			if w.Have&abi.HaveAttach == 0 {
				n[w.Inode] = 0
			} else if n[w.Inode]++; n[w.Inode] > atOnce {
				t.Fatalf("%d records of one buffer at once", n[w.Inode])
			}
		}
		return out, err
	}
	for _, n := range []int{0, 1, 12, 13, 14, 20, 24, 25, 26, 100, MaxAttachments} {
		c = crowd{1: nil, 2: numbered(n), 3: numbered(3), 4: numbered(2 * n / 3)}
		all, err := Passes(counted)
		c.want(t, all, err)
	}
	c = crowd{1: numbered(MaxAttachments + 7), 2: numbered(2)}
	all, err := Passes(c.list)
	if err == nil {
		t.Error("nothing is said of what is beyond the bound")
	} else {
		if want := "dma-buf 1 has 260 attachments, of which 253 are listed"; !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	c.want(t, all, nil)
}

// Passes lists attachments that move up between two passes, or returns an error.
func TestPassesWhileSomeGo(t *testing.T) {
	c := crowd{1: numbered(40)}
	calls := 0
	all, err := Passes(func(first uint32) ([]*abi.Record, error) {
		if calls++; calls == 3 { // one goes, one comes
			c[1] = append(c[1][1:], 41)
		}
		return c.list(first)
	})
	if got := c.seen(all); err != nil || got != fmt.Sprintln(numbered(41)) {
		t.Errorf("listed %s (%v)", got, err)
	}
	_, err = Passes(func(first uint32) ([]*abi.Record, error) {
		if first > 0 {
			c[1] = c[1][1:]
		}
		return c.list(first)
	})
	if err == nil {
		t.Error("nothing is said of a list that never stood still")
	}
}

// Passes returns the attachments that it has listed before an error.
func TestPassesFail(t *testing.T) {
	c := crowd{1: numbered(20)}
	all, err := Passes(func(first uint32) ([]*abi.Record, error) {
		if first > 0 {
			return nil, io.ErrUnexpectedEOF
		}
		return c.list(first)
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) || c.seen(all) != fmt.Sprintln(numbered(13)) {
		t.Errorf("%v, listed %s", err, c.seen(all))
	}
}
