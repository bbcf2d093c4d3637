// SPDX-License-Identifier: Apache-2.0

package check

import (
	"path"
	"regexp"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/drivers"
)

// IBDir returns the directory of an RDMA device, without the first slash.
func IBDir(n drivers.NIC) string { return path.Join("sys/class/infiniband", n.Name) }

// VerbsDirs are the directories in which distributions have libraries, without the first slash.
var VerbsDirs = []string{"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib", "usr/local/lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}

// providerNames matches the format by which a libibverbs names its providers' libraries: the number
// of its private interface, and mostly a directory.
var providerNames = regexp.MustCompile(`((?:/[\w.+@-]+)*/)?lib%s-rdmav(\d+)\.so`)

// mostProviders is more than any library names: there are two.
const mostProviders = 16

// ProvidersIn finds, in the bytes of a libibverbs, the names by which it loads providers'
// libraries. For each it returns the name, the directory ("" without one), and the number of the
// private interface.
func ProvidersIn(library string) (out [][]string) {
	for {
		at := strings.Index(library, "lib%s-rdmav")
		if at < 0 {
			return out
		}
		begin := strings.LastIndexByte(library[:at], 0) + 1
		end := len(library)
		if n := strings.IndexByte(library[at:], 0); n >= 0 {
			end = at + n
		}
		out = append(out, providerNames.FindAllStringSubmatch(library[begin:end], mostProviders)...)
		if len(out) >= mostProviders {
			return out
		}
		library = library[end:]
	}
}

// ProviderNames returns the names of providers' libraries in the bytes of a libibverbs, one a line.
func ProviderNames(library []byte) []byte {
	var out []byte
	for _, m := range ProvidersIn(string(library)) {
		out = append(append(out, m[0]...), '\n')
	}
	return out
}
