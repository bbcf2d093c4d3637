// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// KCore is the kernel's memory as a core dump (proc_kcore(5)). A note in its head has the
// facts about the kernel that tools for crash dumps need.
const KCore = "/proc/kcore"

// ARM64Pages is where the struct of page 0 is, or would be, in the kernel's array of all
// pages; 0 where that is not known. On arm64 the array's start is a constant of the
// kernel's build, which stands for the first page of memory (arch/arm64/include/asm/pgtable.h):
//
//	#define vmemmap ((struct page *)VMEMMAP_START - (memstart_addr >> PAGE_SHIFT))
//
// The kernel lists the constant, memstart_addr as PHYS_OFFSET and the size of struct page in the
// note VMCOREINFO (arch/arm64/kernel/vmcore_info.c; with VMEMMAP_START since 6.1, where it is
// configured for crash dumps). Reading it takes CAP_SYS_RAWIO, and no lockdown.
func ARM64Pages(kcore string, pageSize uint64) uint64 {
	f, err := elf.Open(kcore)
	if err != nil {
		return 0
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > maxNotes {
			continue
		}
		notes, err := io.ReadAll(p.Open())
		if err != nil {
			return 0
		}
		if text := note(notes, "VMCOREINFO"); text != nil {
			return pagesOf(text, pageSize)
		}
	}
	return 0
}

// maxNotes bounds what is read of a file that should have a few pages of notes.
const maxNotes = 1 << 20

// note is the content of the first note of a name.
func note(notes []byte, name string) []byte {
	const head = 12
	for len(notes) >= head {
		nameLen, size := uint64(binary.NativeEndian.Uint32(notes)), uint64(binary.NativeEndian.Uint32(notes[4:]))
		at := head + (nameLen+3)&^3
		next := at + (size+3)&^3
		if head+nameLen > uint64(len(notes)) || at+size > uint64(len(notes)) {
			return nil
		}
		if string(bytes.TrimRight(notes[head:head+nameLen], "\x00")) == name {
			return notes[at : at+size]
		}
		notes = notes[min(next, uint64(len(notes))):]
	}
	return nil
}

// pagesOf reads the lines of VMCOREINFO. Numbers are hexadecimal after 0x.
func pagesOf(text []byte, pageSize uint64) uint64 {
	var start, memory, size, shown uint64
	want := map[string]*uint64{
		"NUMBER(VMEMMAP_START)": &start, "NUMBER(PHYS_OFFSET)": &memory, "SIZE(page)": &size, "PAGESIZE": &shown,
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), "=")
		to := want[key]
		if to == nil {
			continue
		}
		if _, err := fmt.Sscan(value, to); err != nil {
			return 0
		}
		delete(want, key)
	}
	if len(want) > 0 || shown != pageSize || start>>63 == 0 || size == 0 {
		return 0
	}
	// Memory starts below 0 where the processor has fewer virtual address bits than the
	// kernel was built for.
	return start - uint64(int64(memory)/int64(pageSize))*size
}
