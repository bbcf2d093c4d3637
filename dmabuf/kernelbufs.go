// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
)

// KernelBuf is a dma-buf in the kernel's own list, which also has dma-bufs that
// no process holds.
type KernelBuf struct {
	Inode    uint64   `json:"inode"`
	Exporter string   `json:"exporter"`
	Name     string   `json:"name,omitempty"`
	Size     int64    `json:"size"`               // bytes
	Count    int64    `json:"count"`              // file references
	Attached []string `json:"attached,omitempty"` // devices that imported it
}

// KernelBufs reads dma_buf/bufinfo of debugfs, the kernel's list of all
// dma-bufs; debugfs is its mount point, "" for /sys/kernel/debug. It needs
// root and a mounted debugfs. Source: dma_buf_debug_show in
// drivers/dma-buf/dma-buf.c.
func KernelBufs(debugfs string) ([]KernelBuf, error) {
	if debugfs == "" {
		debugfs = "/sys/kernel/debug"
	}
	path := filepath.Join(debugfs, "dma_buf/bufinfo")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &failure.Error{Op: "read", Device: path, Remedy: "run as root, with debugfs mounted and CONFIG_DEBUG_FS", Err: rootErrno(err)}
	}
	return parseBufInfo(string(text)), nil
}

// parseBufInfo reads bufinfo's text: one line a buffer, in tab-separated
// columns, and below it the devices that it is attached to.
func parseBufInfo(text string) []KernelBuf {
	var out []KernelBuf
	attached := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if b, ok := parseBufLine(line); ok {
			out = append(out, b)
			attached = false
			continue
		}
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "Attached Devices"):
			attached = true
		case strings.HasPrefix(trimmed, "Total"), trimmed == "":
			attached = false
		case attached && len(out) > 0:
			b := &out[len(out)-1]
			b.Attached = append(b.Attached, trimmed)
		}
	}
	return out
}

// parseBufLine reads "size flags mode count exp_name ino name".
func parseBufLine(line string) (KernelBuf, bool) {
	f := strings.SplitN(line, "\t", 7)
	if len(f) < 6 {
		return KernelBuf{}, false
	}
	size, err1 := strconv.ParseInt(strings.TrimSpace(f[0]), 10, 64)
	count, err2 := strconv.ParseInt(strings.TrimSpace(f[3]), 10, 64)
	inode, err3 := strconv.ParseUint(strings.TrimSpace(f[5]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return KernelBuf{}, false
	}
	b := KernelBuf{Inode: inode, Exporter: strings.TrimSpace(f[4]), Size: size, Count: count}
	if len(f) == 7 && f[6] != "<none>" {
		b.Name = f[6]
	}
	return b, true
}
