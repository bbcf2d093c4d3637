// SPDX-License-Identifier: Apache-2.0

package pci

import "encoding/binary"

// Sizes of the capabilities that this package reads.
const (
	expSize = 0x3c
	acsSize = 8
	atsSize = 8
)

// extendedSize is how much of an extended capability is read: its header at least.
func extendedSize(config []byte, at int) int {
	switch binary.LittleEndian.Uint16(config[at:]) {
	case extCapIDACS:
		return acsSize
	case extCapIDATS:
		return atsSize
	case extCapIDReBAR:
		if at+rebarCtrl+2 <= len(config) {
			count := int(binary.LittleEndian.Uint16(config[at+rebarCtrl:]) & rebarCtrlCount >> 5)
			return rebarCap + 8*min(count, standardBARs)
		}
	}
	return 4
}

// Known is a configuration space with the registers that this package reads: the header, the list of capabilities, and those of
// PCI Express, ACS, ATS and resizable BARs. All others read as zero: a vendor can have anything there.
func Known(config []byte) []byte {
	out := make([]byte, len(config))
	keep := func(at, n int) {
		if at < len(config) {
			copy(out[at:min(at+n, len(out))], config[at:])
		}
	}
	if len(config) < stdHeaderSize { // a space that was cut so is not read
		return out
	}
	keep(0, stdHeaderSize)
	if binary.LittleEndian.Uint16(config[regStatus:])&statusCapList != 0 {
		at := int(config[regCapList]) &^ 3
		for range (cfgSpaceSize - stdHeaderSize) / 4 {
			if at < stdHeaderSize || at+2 > len(config) {
				break
			}
			keep(at, 2)
			if config[at] == capIDExp {
				keep(at, expSize)
			}
			if config[at] == 0xff {
				break
			}
			at = int(config[at+1]) &^ 3
		}
	}
	at := cfgSpaceSize
	for range (cfgSpaceExpSize - cfgSpaceSize) / 8 {
		if at+4 > len(config) {
			break
		}
		header := binary.LittleEndian.Uint32(config[at:])
		keep(at, extendedSize(config, at))
		if at = int(header >> 20 &^ 3); at < cfgSpaceSize {
			break
		}
	}
	// Whether there is anything behind 256 bytes says whether the space was read.
	if some(config, cfgSpaceSize) && !some(out, cfgSpaceSize) {
		out[len(out)-1] = 1
	}
	if some(config, stdHeaderSize) && !some(out, stdHeaderSize) {
		out[min(len(out), cfgSpaceSize)-1] = 1
	}
	return out
}

// some reports a byte that is not zero from a place on.
func some(config []byte, from int) bool {
	for _, b := range config[min(from, len(config)):] {
		if b != 0 {
			return true
		}
	}
	return false
}
