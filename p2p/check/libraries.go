// SPDX-License-Identifier: Apache-2.0

package check

import (
	"path"
	"regexp"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/drivers"
)

// IBDir is the directory of an RDMA device.
func IBDir(n drivers.NIC) string { return path.Join("sys/class/infiniband", n.Name) }

// VerbsDirs are where distributions put libraries.
var VerbsDirs = []string{"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib", "usr/local/lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}

// providerNames matches the format by which a libibverbs names its providers' libraries: the number
// of its private interface, and mostly a directory.
var providerNames = regexp.MustCompile(`((?:/[\w.+@-]+)*/)?lib%s-rdmav(\d+)\.so`)

// mostProviders is more than any library names: there are two.
const mostProviders = 16

// ProvidersIn are all matches of providerNames. The expression is slow on a library's hundred thousand
// bytes: it gets only the strings that may match.
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

// ProviderNames are the names of providers' libraries in a libibverbs, one a line.
func ProviderNames(library []byte) []byte {
	var out []byte
	for _, m := range ProvidersIn(string(library)) {
		out = append(append(out, m[0]...), '\n')
	}
	return out
}
