// SPDX-License-Identifier: Apache-2.0

package initrd

import (
	"fmt"
	"io"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

// Module is one kernel module in the order of loading.
type Module struct {
	Name   string
	Params string
	Data   []byte // decompressed
}

// Paths inside the initramfs.
const (
	ListPath  = "/modules/list" // lines: file, then parameters
	ModuleDir = "/modules"
)

// Write writes an initramfs with init as /init. early modules are loaded
// before the host can be reached, late ones when init has reported.
func Write(w io.Writer, init []byte, early, late []Module) error {
	rw := cpio.Newc.Writer(w)
	records := []cpio.Record{
		cpio.Directory("dev", 0o755), cpio.Directory("proc", 0o755), cpio.Directory("sys", 0o755),
		cpio.Directory("modules", 0o755), cpio.Directory("lower", 0o755), cpio.Directory("upper", 0o755),
		cpio.Directory("root", 0o755), cpio.Directory("stash", 0o755),
		cpio.StaticFile("init", string(init), 0o755),
	}
	var list strings.Builder
	add := func(kind string, ms []Module) {
		for i, m := range ms {
			file := fmt.Sprintf("%s-%03d-%s.ko", kind, i, m.Name)
			records = append(records, cpio.StaticFile("modules/"+file, string(m.Data), 0o644))
			fmt.Fprintf(&list, "%s %s %s\n", kind, file, m.Params)
		}
	}
	add(Early, early)
	add(Late, late)
	records = append(records, cpio.StaticFile("modules/list", list.String(), 0o644))
	for i, r := range records {
		r.Ino = uint64(i + 1)
		if err := rw.WriteRecord(r); err != nil {
			return err
		}
	}
	return cpio.WriteTrailer(rw)
}

// Kinds of modules in the list.
const (
	Early = "early"
	Late  = "late"
)
