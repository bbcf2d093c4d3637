// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strconv"

	"github.com/gpurdma/gpurdma/p2p/variables"
)

// Processor describes the first processor by the fields that the libraries'
// tables compare. It returns the zero CPU if /proc/cpuinfo cannot be read. A number
// that the file does not have is -1.
func Processor(l *Look) variables.CPU {
	r := l.Read("proc/cpuinfo")
	number := func(key string) int {
		text, _ := r.Line(key)
		n, err := strconv.ParseInt(text, 0, 32)
		if err != nil {
			return -1
		}
		return int(n)
	}
	switch vendor, x86 := r.Line("vendor_id"); {
	case r.Err != nil:
		return variables.CPU{}
	case x86:
		return variables.CPU{Vendor: vendor, Family: number("cpu family"), Model: number("model\t")}
	}
	vendor, _ := r.Line("CPU implementer")
	return variables.CPU{Vendor: vendor, Model: number("CPU part")}
}
