// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vmcoreinfo is the note of a kernel with pages of 16 KiB, on a processor with 48 address bits.
const vmcoreinfo = `OSRELEASE=7.2.12+deb13-arm64-16k
PAGESIZE=16384
SIZE(page)=64
OFFSET(page.flags)=0
NUMBER(VA_BITS)=52
NUMBER(VMEMMAP_START)=0xffffff03c0000000
NUMBER(VMEMMAP_END)=0xffffffffc0000000
NUMBER(PHYS_OFFSET)=0xfff1000040000000
`

// kcore is a core dump with notes, the last of which is VMCOREINFO.
func kcore(t *testing.T, text string) string {
	t.Helper()
	const headers = 64 + 56
	var notes []byte
	for _, n := range []struct{ name, desc string }{{"CORE", "123"}, {"VMCOREINFO", text}} {
		notes = binary.NativeEndian.AppendUint32(notes, uint32(len(n.name)+1))
		notes = binary.NativeEndian.AppendUint32(notes, uint32(len(n.desc)))
		notes = binary.NativeEndian.AppendUint32(notes, 0)
		for _, part := range []string{n.name + "\x00", n.desc} {
			notes = append(notes, part...)
			notes = append(notes, make([]byte, -len(part)&3)...)
		}
	}
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_CORE), Machine: uint16(elf.EM_AARCH64), Version: uint32(elf.EV_CURRENT),
			Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		},
		elf.Prog64{Type: uint32(elf.PT_NOTE), Off: headers, Filesz: uint64(len(notes))},
		notes,
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "kcore")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The struct of page 0 is as far before that of the first page of memory as there would
// be pages, which may be less than none.
func TestARM64Pages(t *testing.T) {
	const start = uint64(0xffffff03c0000000)
	below := uint64(0xfff1000040000000)
	if got, want := ARM64Pages(kcore(t, vmcoreinfo), 16<<10), start+(-below)>>14*64; got != want {
		t.Errorf("memory from below 0: %#x, want %#x", got, want)
	}
	positive := strings.Replace(vmcoreinfo, "0xfff1000040000000", "0x40000000", 1)
	if got, want := ARM64Pages(kcore(t, positive), 16<<10), start-0x40000000>>14*64; got != want {
		t.Errorf("memory from 1 GiB: %#x, want %#x", got, want)
	}
	for name, text := range map[string]string{
		"no constant":    strings.Replace(vmcoreinfo, "VMEMMAP_START", "VMEMMAP_STARTS", 1),
		"no memory":      strings.Replace(vmcoreinfo, "PHYS_OFFSET", "PHYS", 1),
		"no size":        strings.Replace(vmcoreinfo, "SIZE(page)", "SIZE(folio)", 1),
		"other pages":    strings.Replace(vmcoreinfo, "16384", "4096", 1),
		"not a number":   strings.Replace(vmcoreinfo, "0xfff1", "fff1", 1),
		"not the kernel": strings.Replace(vmcoreinfo, "0xffffff03c", "0x3c", 1),
		"empty":          "",
	} {
		if got := ARM64Pages(kcore(t, text), 16<<10); got != 0 {
			t.Errorf("%s: %#x, want 0", name, got)
		}
	}
	if got := ARM64Pages("/nonexistent", 16<<10); got != 0 {
		t.Errorf("no file: %#x", got)
	}
	if got := note([]byte{11, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 'V', 'M', 'C'}, "VMCOREINFO"); got != nil {
		t.Errorf("a note beyond the end: %q", got)
	}
}
