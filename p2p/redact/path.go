// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Path returns the name that a file of the machine has in a snapshot. Both names are without the first slash.
func (r *Redactor) Path(name string) string {
	parts := strings.Split(name, "/")
	out := make([]string, len(parts))
	for i, part := range parts {
		above := ""
		// A device may be called as a directory of devices is.
		if i > 0 && (i < 2 || kinds[parts[i-2]] == "") {
			above = parts[i-1]
		}
		out[i] = r.part(above, part)
	}
	return strings.Join(out, "/")
}

// Link returns the text of a symbolic link in the snapshot, such as "../b". name
// is the name of the link, and target that of the file to which it leads, both on
// the machine.
func (r *Redactor) Link(name, target string) string {
	return Relative(path.Dir(r.Path(name)), r.Path(target))
}

// Relative returns the text of a symbolic link in the directory dir that leads to
// name.
func Relative(dir, name string) string {
	to := strings.Split(path.Clean(name), "/")
	var from []string
	if dir = path.Clean(dir); dir != "." {
		from = strings.Split(dir, "/")
	}
	same := 0
	for same < len(from) && same < len(to)-1 && from[same] == to[same] {
		same++
	}
	return strings.Repeat("../", len(from)-same) + strings.Join(to[same:], "/")
}

// kinds are what the files of a directory are named after.
var kinds = map[string]kind{
	"module": ofModule, "drivers": ofModule, "net": ofNet, "infiniband": ofRDMA, "memory_peers": ofPeer,
	"security": ofLSM, "events": ofEvent, "iommu": ofIOMMU, "cdi": ofCDI, "device-plugins": ofPlugin,
}

var (
	aProvider = expression(`^lib(.+)-rdmav(\d{1,4})\.so$`)
	// aBond matches the link from a port to its bond.
	aBond = expression(`^(upper|lower)_(.+)$`)
)

// aLibrary is the beginning of libibverbs' name.
const aLibrary = "libibverbs.so.1."

// part is what stands for one part of a name. above is the name of its directory.
func (r *Redactor) part(above, part string) string {
	switch of := kinds[above]; {
	case of == ofCDI || of == ofPlugin:
		ext := path.Ext(part)
		if common(of, part) || ext != ".sock" && ext != ".yaml" && ext != ".json" {
			return r.name(of, part)
		}
		return r.whole(part, r.name(of, strings.TrimSuffix(part, ext))+ext)
	case of != "" && !(of == ofModule && part == "module"):
		return r.name(of, part)
	}
	switch {
	case above == "libibverbs.d":
		if provider, ok := strings.CutSuffix(part, ".driver"); ok {
			return r.whole(part, r.name(ofProvider, provider)+".driver")
		}
		return r.name(ofProvider, part)
	case above == "libibverbs":
		if m := aProvider.FindStringSubmatch(part); m != nil {
			return r.whole(part, "lib"+r.name(ofProvider, m[1])+"-rdmav"+m[2]+".so")
		}
		return r.name(ofProvider, part)
	case above == "hw_counters" && slices.Contains(machine.LossCounters, part), aNamespace.MatchString(part):
		return part
	case strings.HasPrefix(part, aLibrary) && !common(ofDir, part):
		return r.whole(part, aLibrary+r.name(ofProvider, strings.TrimPrefix(part, aLibrary)))
	case strings.HasPrefix(part, "config-") && above == "boot":
		return "config-" + r.release(strings.TrimPrefix(part, "config-"))
	case above == "modules" || above == "kernels":
		return r.release(part)
	case above == "src" && strings.HasPrefix(part, "linux-headers-"):
		return "linux-headers-" + r.release(strings.TrimPrefix(part, "linux-headers-"))
	}
	if m := aBond.FindStringSubmatch(part); m != nil {
		return m[1] + "_" + r.name(ofNet, m[2])
	}
	return r.name(ofDir, part)
}
