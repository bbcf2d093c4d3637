// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"maps"
	"strings"
)

// Redactor replaces names and addresses that identify the owner of a machine. It replaces equal texts by equal ones, so that
// files that refer to each other still do. Only one goroutine may use a Redactor at a time.
type Redactor struct {
	names    map[string]string // replacements
	devices  map[string]string // names of network and RDMA devices, replaced or not
	stems    map[string]string // likewise, of names without their number
	count    map[kind]int
	texts    map[string]string // whole lines and texts
	gids     map[string]string
	cards    map[string]string // values of vital product data
	products map[string]string // words in names of makers and products
}

// New returns a redactor for one machine.
func New() *Redactor {
	return &Redactor{names: map[string]string{}, devices: map[string]string{}, stems: map[string]string{}, count: map[kind]int{}, texts: map[string]string{}, gids: map[string]string{}, cards: map[string]string{}, products: map[string]string{}}
}

// Replaced returns the replacements so far: the keys are texts of the machine, the values those of the snapshot.
// The map is the caller's.
func (r *Redactor) Replaced() map[string]string {
	out := maps.Clone(r.names)
	maps.Copy(out, r.gids)
	maps.Copy(out, r.cards)
	maps.Copy(out, r.texts)
	return out
}

// none stands for a value that no rule keeps.
const none = "redacted"

// kind is what a name is of. The replacement begins with it.
type kind string

const (
	ofRDMA     kind = "rdma"
	ofNet      kind = "net"
	ofModule   kind = "module"
	ofPeer     kind = "peer"
	ofProvider kind = "provider"
	ofPlugin   kind = "plugin"
	ofCDI      kind = "cdi"
	ofRelease  kind = "kernel"
	ofIOMMU    kind = "iommu"
	ofEvent    kind = "event"
	ofLSM      kind = "lsm"
	ofDir      kind = "dir"
	ofWord     kind = "word"
)

// numbered matches a name with a short number at its end, and hexadecimal digits as long as a MAC, which such a number
// may be a part of.
var (
	numbered = expression(`^(.*[^0-9])([0-9]{1,3})$`)
	longHex  = expression(`[0-9A-Fa-f]{8}`)
)

// name returns a common name unchanged, and a replacement for any other name. It keeps the number at the end of a device's name,
// because libraries match devices by a prefix.
func (r *Redactor) name(of kind, name string) string {
	now := r.named(of, name)
	if of.device() {
		r.devices[name] = now
	}
	return now
}

// device reports the kinds that libraries choose devices by.
func (k kind) device() bool { return k == ofRDMA || k == ofNet }

func (r *Redactor) named(of kind, name string) string {
	if common(of, name) {
		return name
	}
	if known := r.names[name]; known != "" {
		return known
	}
	stem, number := name, ""
	if m := numbered.FindStringSubmatch(name); m != nil && !longHex.MatchString(name) && of.device() {
		stem, number = m[1], m[2]
	}
	if r.stems[stem] == "" {
		r.stems[stem] = string(of) + "-" + letters(r.count[of])
		r.count[of]++
	}
	r.names[name] = r.stems[stem] + number
	return r.names[name]
}

// letters are a … x, zaa … zxx, zzaaa …: none is the beginning of another, and they grow as a number's digits do.
func letters(n int) string {
	const base = 24
	size, many := 1, base
	for n >= many {
		n -= many
		size, many = size+1, many*base
	}
	out := make([]byte, size)
	for i := size - 1; i >= 0; i-- {
		out[i] = byte('a' + n%base)
		n /= base
	}
	return strings.Repeat("z", size-1) + string(out)
}

// Name returns the name that a network device has in the snapshot.
func (r *Redactor) Name(name string) string { return r.name(ofNet, name) }

// whole remembers that a text has become another.
func (r *Redactor) whole(was, now string) string {
	if was != now {
		r.texts[strings.TrimSpace(was)] = strings.TrimSpace(now)
	}
	return now
}
