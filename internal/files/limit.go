// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// ErrTooLarge is the error for a file of another machine that exceeds the limit of its kind, and for such a directory.
var ErrTooLarge = errors.New("too large")

// Limits of the files of another machine, by their kind. Each is a few times what large machines have.
const (
	smallLimit  = 64 << 10 // an attribute of sysfs, which has a page at most, vital product data, most files of procfs
	mediumLimit = 1 << 20  // configurations, libraries, an environment
	longLimit   = 4 << 20  // files with a line for each processor, mount or record
	symbolLimit = 64 << 20 // names of all of the kernel's functions

	namesLimit = 100_000 // of a directory
)

// limit is how much is read of a file, by its name on that machine.
func limit(name string) int64 {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	base := path.Base(name)
	top, _, _ := strings.Cut(name, "/")
	switch {
	case top == "sys":
		return smallLimit
	case base == "kallsyms":
		return symbolLimit
	case base == "cpuinfo", base == "mountinfo", base == "kmsg":
		return longLimit
	case base == "environ", base == "config", base == ".config", base == "config.gz", base == "modules.builtin",
		strings.HasPrefix(base, "config-"), strings.HasPrefix(base, "lib"):
		return mediumLimit
	}
	return smallLimit
}

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: more than %d KiB, the most that is read of such a file", ErrTooLarge, limit>>10)
}
