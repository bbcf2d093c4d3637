// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Rules of attributes.
var (
	exists          = &Rule{Keeps: "that it is there"}
	number          = shape("a number", aNumber)
	anID            = shape("an ID of PCI", aHexID)
	mask            = shape("a bit mask", aHexMask)
	answer          = shape("Y or N", anAnswer)
	speed           = shape("the speed of a link", aSpeed)
	state           = shape("a state and its number", aPort)
	rate            = shape("a rate", aLinkRate)
	firmwareVersion = shape("a version", aVersion)
	version         = &Rule{"a version, unless it may be an address", func(r *Redactor, data []byte) []byte {
		if len(data) > 0 && (!aVersion.Match(data) || anIPv4.Match(data)) {
			return r.other(data)
		}
		return data
	}}
	source = shape("the checksum of a module's source", aSource)
	board  = shape("the number of a product", aBoard)
	taint  = shape("letters", aTaint)
	cpus   = shape("a list of numbers", aCPUList)
	lock   = shape("the kernel's modes, and which one is on", expression(`^(?:\[?(?:none|integrity|confidentiality)\]? ?){1,3}\s*$`))

	netName = named(ofNet)
	ibName  = named(ofRDMA)

	linkLayer = oneOf("InfiniBand", "Ethernet", "Unknown", "Unspecified")
	operstate = oneOf("up", "down", "unknown", "dormant", "lowerlayerdown", "notpresent", "testing")
	initstate = oneOf("live", "coming", "going")
	domain    = oneOf("DMA", "DMA-FQ", "identity", "blocked", "unmanaged", "auto", "unknown")
	power     = oneOf("active", "suspended", "suspending", "resuming", "error", "unsupported")
	gidType   = oneOf("RoCE v2", "IB/RoCE v1")
	slave     = oneOf("active", "backup")
	// Rules of the test bed's devices: how they import and export.
	importer  = oneOf("pinned", "revocable", "dynamic", "none")
	pinRule   = oneOf("system", "vram")
	behaviour = &Rule{"a driver whose exporter the test bed imitates", func(r *Redactor, data []byte) []byte {
		if _, err := drivers.ParseClass(strings.TrimSpace(string(data))); err != nil {
			return r.other(data)
		}
		return data
	}}

	regions = byLine("start, end and flags of regions", func(_ *Redactor, line string) (string, bool) {
		if !aRegions.MatchString(line) {
			line = none
		}
		return line, true
	})
	buffer = each("the registers cmbloc and cmbsz", expression(`^cmb(?:loc|sz) *: (?:0?x)?[0-9a-f]{1,16}$`))
	aer    = each("the kernel's names of errors, and how many there were", expression(`^(?:`+aerNames+`) \d{1,20}$`))
	limit  = byLine("the name of a device, and limits", func(r *Redactor, line string) (string, bool) {
		f := strings.Fields(line)
		if len(f) == 0 {
			return line, true
		}
		f[0] = r.name(ofRDMA, f[0])
		for i, word := range f[1:] {
			if key, value, ok := strings.Cut(word, "="); !anHCALimit.MatchString(word) {
				f[i+1] = none
				if ok && (key == "hca_handle" || key == "hca_object") {
					f[i+1] = key + "=" + r.whole(value, none)
				}
			}
		}
		return strings.Join(f, " "), true
	})
	gfx      = each("gfx_target_version", expression(`^gfx_target_version \d{1,20}$`))
	linkType = each("type", expression(`^type \d{1,20}$`))
	firmware = &Rule{"names of makers, products and hypervisors; other words are replaced", func(r *Redactor, data []byte) []byte {
		text := r.maker(string(data))
		var lost []string
		for _, word := range machine.KnownFirmware(string(data)) {
			if !strings.Contains(text, word) {
				lost = append(lost, word)
			}
		}
		body, whole := strings.CutSuffix(text, "\n")
		text = strings.Join(append([]string{body}, lost...), " ")
		if whole {
			text += "\n"
		}
		return []byte(r.whole(string(data), text))
	}}

	space = &Rule{"the header, and the capabilities that a check reads: PCI Express, ACS, ATS, resizable BARs", func(_ *Redactor, data []byte) []byte { return pci.Known(data) }}
	vpd   = &Rule{"the fields V3 and VU, replaced by the number of the card", (*Redactor).vpd}
	gid   = &Rule{"an address, replaced by another of its kind", (*Redactor).address}

	anHCALimit = expression(`^hca_(?:handle|object)=(?:max|\d{1,20})$`)
)

// aerNames are the errors that the kernel counts (drivers/pci/pcie/aer.c).
const aerNames = `Undefined|RxErr|BadTLP|BadDLLP|Rollover|Timeout|NonFatalErr|CorrIntErr|HeaderOF|DLP|SDES|TLP|FCP|CmpltTO|CmpltAbrt|UnxCmplt|RxOF|MalfTLP|ECRC|UnsupReq|ACSViol|UncorrIntErr|BlockedTLP|AtomicOpBlocked|TLPBlockedErr|PoisonTLPBlocked|DMWrReqBlocked|IDECheck|MisIDETLP|PCRC_CHECK|TLPXlatBlocked|TOTAL_ERR_(?:COR|FATAL|NONFATAL)`

// library keeps where a libibverbs looks for providers.
var library = &Rule{"the names of files that it loads as providers", func(r *Redactor, data []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(check.ProviderNames(data))) {
		dir, file := path.Split(line)
		if dir != "" {
			dir = "/" + r.Path(strings.Trim(dir, "/")) + "/"
		}
		out.WriteString(dir + file)
	}
	return []byte(out.String())
}}

// vpd keeps the fields that functions of one card have in common. They are numbers of the card, and are replaced.
func (r *Redactor) vpd(data []byte) []byte {
	var kept []pci.VPDField
	for _, keyword := range []string{"V3", "VU"} {
		value := pci.VPDKeyword(data, keyword)
		if value == "" {
			continue
		}
		if r.cards[value] == "" {
			r.cards[value] = fmt.Sprintf("card-%d", len(r.cards)+1)
		}
		kept = append(kept, pci.VPDField{Keyword: keyword, Value: r.cards[value]})
	}
	return pci.VPD(kept...)
}

// address replaces a GID by one of its kind.
func (r *Redactor) address(data []byte) []byte {
	body := strings.TrimSpace(string(data))
	raw, err := hex.DecodeString(strings.ReplaceAll(body, ":", ""))
	if err != nil || len(raw) != 16 {
		return []byte("\n") // neither this nor the original is an address
	}
	a := netip.AddrFrom16([16]byte(raw))
	if a.IsUnspecified() {
		return data
	}
	if r.gids[body] == "" {
		r.gids[body] = another(a, len(r.gids)+1)
	}
	return []byte(r.gids[body] + "\n")
}

// another is the n-th address of a kind, as sysfs writes it.
func another(a netip.Addr, n int) string {
	var out [16]byte
	switch {
	case a.Is4In6():
		out[10], out[11], out[12] = 0xff, 0xff, 10
		if a.Unmap().IsLinkLocalUnicast() {
			out[12], out[13] = 169, 254
		}
	case a.IsLinkLocalUnicast():
		out[0], out[1] = 0xfe, 0x80
	default:
		copy(out[:], "\x20\x01\x0d\xb8")
	}
	binary.BigEndian.PutUint16(out[14:], uint16(n))
	var parts []string
	for i := 0; i < len(out); i += 2 {
		parts = append(parts, hex.EncodeToString(out[i:i+2]))
	}
	return strings.Join(parts, ":")
}

// Counter reports whether a check reads the counter of a port with this name.
func Counter(name string) bool { return slices.Contains(machine.LossCounters, name) }
