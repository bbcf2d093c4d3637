// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Some names a few functions.
func Some(names []string) string {
	if n := len(names) - ShownFiles; n > 0 {
		return strings.Join(names[:ShownFiles], ", ") + " and " + strconv.Itoa(n) + " more"
	}
	return strings.Join(names, ", ")
}

// SmallBAR is what a GPU shows without resizable BAR.
const SmallBAR = 256 << 20

// OrText is the error of reading a number, or the text that is not a number.
func OrText(r machine.Reading) string {
	if r.Err != nil {
		return r.Why()
	}
	return fmt.Sprintf("%q", r.Text)
}

// Base is the last element of a link.
func Base(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

// Copied is the shell command that copies a kernel's configuration, without the target. /proc/config.gz
// is compressed.
func Copied(source string) string {
	if strings.HasSuffix(source, ".gz") {
		return "zcat " + source + " > "
	}
	return "cp " + source + " "
}
