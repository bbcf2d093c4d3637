// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// vmlinux is an ELF file of one note.
func vmlinux(t *testing.T, note uint32) []byte {
	t.Helper()
	const headers = 64 + 56
	desc := []byte{0, 0, 0, 1, 0, 0, 0, 0}
	notes := binary.LittleEndian.AppendUint32(nil, 4)
	notes = binary.LittleEndian.AppendUint32(notes, uint32(len(desc)))
	notes = binary.LittleEndian.AppendUint32(notes, note)
	notes = append(append(notes, "Xen\x00"...), desc...)
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
			Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		},
		elf.Prog64{Type: uint32(elf.PT_NOTE), Off: headers, Filesz: uint64(len(notes))},
		notes,
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// image is a bzImage around a payload, whose size says it is more by beyond.
func image(t *testing.T, payload []byte, beyond int) []byte {
	t.Helper()
	b := make([]byte, 2*sector)
	b[atSetupSects] = 1
	copy(b[atMagic:], "HdrS")
	binary.LittleEndian.PutUint32(b[atPayloadLength:], uint32(len(payload)+4+beyond))
	return append(append(b, payload...), 0, 0, 0, 0)
}

func packed(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

func TestUnpack(t *testing.T) {
	whole := vmlinux(t, xenEntry)
	if got, err := unpack(image(t, packed(t, whole), 0)); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("%d bytes of %d, %v", len(got), len(whole), err)
	}
	for _, c := range []struct {
		name, words string
		image       []byte
	}{
		{"short", "no bzImage", make([]byte, 100)},
		{"another file", "no bzImage", make([]byte, 4096)},
		{"cut", "is not in an image", image(t, packed(t, whole), 1)},
		{"empty", "is not in an image", image(t, nil, 0)},
		{"packed otherwise", "not known", image(t, []byte("\x1f\x8b\x08 and more"), 0)},
		{"damaged", "", image(t, packed(t, whole)[:40], 0)},
		{"no ELF", "bad magic", image(t, packed(t, make([]byte, 4096)), 0)},
		{"no entry", "CONFIG_PVH", image(t, packed(t, vmlinux(t, 17)), 0)},
	} {
		if _, err := unpack(c.image); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", c.name, err, c.words)
		}
	}
}

// A kernel is unpacked once, and again if the image has changed. An image that cannot be
// unpacked is started as it is.
func TestBoot(t *testing.T) {
	k := Kernel{Release: "1", Dir: t.TempDir()}
	write := func(data []byte, at time.Time) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(k.Image()), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(k.Image(), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(k.Image(), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if got := k.Boot(); got != k.Image() {
		t.Errorf("none: %s", got)
	}
	now := time.Now()
	write([]byte("no image"), now.Add(-2*time.Hour))
	if got := k.Boot(); got != k.Image() {
		t.Errorf("no image: %s", got)
	}
	whole := vmlinux(t, xenEntry)
	write(image(t, packed(t, whole), 0), now.Add(-time.Hour))
	file := k.Boot()
	if got, err := os.ReadFile(file); err != nil || file == k.Image() || !bytes.Equal(got, whole) {
		t.Fatalf("%s: %v", file, err)
	}
	old := now.Add(-30 * time.Minute)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	k.Boot()
	if st, err := os.Stat(file); err != nil || !st.ModTime().Equal(old) {
		t.Errorf("unpacked twice: %v, %v", st, err)
	}
	write(image(t, packed(t, append(whole, 0)), 0), now.Add(-time.Minute))
	if got, err := os.ReadFile(k.Boot()); err != nil || len(got) != len(whole)+1 {
		t.Errorf("the image is another: %d bytes, %v", len(got), err)
	}
	if left, _ := filepath.Glob(filepath.Join(k.Dir, "vmlinux-*")); len(left) != 1 {
		t.Errorf("%v", left)
	}
}
