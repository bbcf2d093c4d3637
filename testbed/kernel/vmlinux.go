// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// Boot returns the file that QEMU starts: the unpacked kernel, or Image if that cannot be
// unpacked. On emulated processors the kernel's own unpacking takes a fifth of a boot's time;
// Boot unpacks it once. QEMU starts the unpacked kernel by Xen's PVH entry, at the address that
// it was linked for, as with nokaslr. arm64's Image is not packed.
func (k Kernel) Boot() string {
	file := filepath.Join(k.Dir, "vmlinux-"+k.Release)
	packed, err := os.Stat(k.Image())
	if err != nil {
		return k.Image()
	}
	// A kernel of the same release may have been built again since.
	if st, err := os.Stat(file); err == nil && !st.ModTime().Before(packed.ModTime()) {
		return file
	}
	image, err := os.ReadFile(k.Image())
	if err != nil {
		return k.Image()
	}
	vmlinux, err := unpack(image)
	if err != nil {
		return k.Image()
	}
	// Another process may do the same now.
	tmp, err := os.CreateTemp(k.Dir, "vmlinux-")
	if err != nil {
		return k.Image()
	}
	_, err = tmp.Write(vmlinux)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return k.Image()
	}
	return file
}

// Offsets in a bzImage: Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".
const (
	atSetupSects    = 0x1f1
	atMagic         = 0x202
	atPayloadOffset = 0x248
	atPayloadLength = 0x24c
	sector          = 512
)

// unpack returns the vmlinux in a bzImage, if QEMU can start it.
func unpack(image []byte) ([]byte, error) {
	if len(image) < atPayloadLength+4 || string(image[atMagic:atMagic+4]) != "HdrS" {
		return nil, errors.New("no bzImage")
	}
	sectors := int64(image[atSetupSects])
	if sectors == 0 {
		sectors = 4
	}
	start := (sectors+1)*sector + int64(binary.LittleEndian.Uint32(image[atPayloadOffset:]))
	end := start + int64(binary.LittleEndian.Uint32(image[atPayloadLength:]))
	if end > int64(len(image)) || end-start < 8 {
		return nil, fmt.Errorf("the payload at %d to %d is not in an image of %d bytes", start, end, len(image))
	}
	// The size of what is unpacked follows the stream: a decoder takes it for the next.
	payload := image[start : end-4]
	var vmlinux []byte
	var err error
	switch {
	case bytes.HasPrefix(payload, []byte("\x28\xb5\x2f\xfd")):
		var d *zstd.Decoder
		if d, err = zstd.NewReader(nil, zstd.WithDecoderMaxWindow(1<<31)); err == nil {
			vmlinux, err = d.DecodeAll(payload, nil)
			d.Close()
		}
	case bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")): // with a filter that no library in Go has
		cmd := exec.Command("xz", "-dc")
		cmd.Stdin = bytes.NewReader(payload)
		vmlinux, err = cmd.Output()
	default:
		return nil, fmt.Errorf("packed in a way that is not known: % x", payload[:4])
	}
	if err != nil {
		return nil, err
	}
	return vmlinux, hasEntry(vmlinux)
}

// xenEntry is XEN_ELFNOTE_PHYS32_ENTRY, by which QEMU starts an ELF file:
// CONFIG_PVH has the kernel have it.
const xenEntry = 18

func hasEntry(vmlinux []byte) error {
	f, err := elf.NewFile(bytes.NewReader(vmlinux))
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		for len(notes) >= 12 {
			name, desc := int64(f.ByteOrder.Uint32(notes)+3)&^3, int64(f.ByteOrder.Uint32(notes[4:])+3)&^3
			if f.ByteOrder.Uint32(notes[8:]) == xenEntry && bytes.HasPrefix(notes[12:], []byte("Xen\x00")) {
				return nil
			}
			next := 12 + name + desc
			if next > int64(len(notes)) {
				break
			}
			notes = notes[next:]
		}
	}
	return errors.New("without CONFIG_PVH")
}
