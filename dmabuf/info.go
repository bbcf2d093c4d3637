// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// Info is what the kernel says about a dma-buf descriptor in fdinfo. Source:
// dma_buf_show_fdinfo in drivers/dma-buf/dma-buf.c.
type Info struct {
	Size     int64  `json:"size"`           // bytes
	Inode    uint64 `json:"inode"`          // identity on this machine
	Exporter string `json:"exporter"`       // exp_name: "drm", "udmabuf", "system"
	Name     string `json:"name,omitempty"` // set by SetName
	Count    int64  `json:"count"`          // references to the file: descriptors, mappings, importers
	Flags    int    `json:"flags"`          // open(2) flags: unix.O_RDWR, …
}

// Writable reports whether the descriptor allows a writable mapping.
func (i Info) Writable() bool { return i.Flags&unix.O_ACCMODE != unix.O_RDONLY }

// Info reads the buffer's fdinfo. Count is the number at this moment, and
// includes this descriptor.
func (b *Buf) Info() (Info, error) {
	var info Info
	err := b.fd.Do(func(raw int) error {
		path := fmt.Sprintf("/proc/self/fdinfo/%d", raw)
		data, err := os.ReadFile(path)
		if err != nil {
			return &failure.Error{Op: "read", Device: path, Err: rootErrno(err)}
		}
		var ok bool
		if info, ok = parseFDInfo(string(data)); !ok {
			return &failure.Error{Op: "read", Device: path, Detail: "no dma-buf fields in it", Err: ErrNotDMABuf}
		}
		if info.Inode == 0 {
			info.Inode = b.inode // kernels before 5.14 print none
		}
		return nil
	})
	return info, err
}

// parseFDInfo reads the text of /proc/PID/fdinfo/N and reports whether it is
// that of a dma-buf. The name comes last and is the application's: it may hold
// line breaks, so that all that follows belongs to it.
func parseFDInfo(text string) (Info, bool) {
	var info Info
	var size, exporter bool
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		key, value, ok := strings.Cut(line, ":\t")
		if ok && key == "name" && exporter {
			_, name, _ := strings.Cut(text, ":\t")
			info.Name = strings.TrimSuffix(name, "\n")
			break
		}
		text = rest
		if !ok {
			continue
		}
		var err error
		switch key {
		case "flags":
			var flags uint64
			flags, err = strconv.ParseUint(value, 8, 32)
			info.Flags = int(flags)
		case "ino":
			info.Inode, err = strconv.ParseUint(value, 10, 64)
		case "size":
			info.Size, err = strconv.ParseInt(value, 10, 64)
			size = true
		case "count":
			info.Count, err = strconv.ParseInt(value, 10, 64)
		case "exp_name":
			info.Exporter = value
			exporter = true
		}
		if err != nil {
			return Info{}, false
		}
	}
	return info, size && exporter
}
