// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Some returns the first ShownFiles names in one line, and the number of the others.
func Some(names []string) string { return human.First(names, ShownFiles) }

// SmallBAR is the size of a GPU's BAR without resizable BAR, in bytes.
const SmallBAR = 256 << 20

// OrText returns the error of reading a number, or the text that is no number.
func OrText(r machine.Reading) string {
	if r.Err != nil {
		return r.Why()
	}
	return fmt.Sprintf("%q", r.Text)
}

// Base returns the last element of a symbolic link's target.
func Base(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

// Copied returns the shell command that copies a kernel's configuration,
// without the target. It unpacks /proc/config.gz.
func Copied(source string) string {
	if strings.HasSuffix(source, ".gz") {
		return "zcat " + source + " > "
	}
	return "cp " + source + " "
}
