// SPDX-License-Identifier: Apache-2.0

package pci

import "encoding/binary"

// WithoutSerial is a configuration space without the device's serial number,
// and what else is as before.
func WithoutSerial(config []byte) []byte {
	out := append([]byte(nil), config...)
	at := cfgSpaceSize
	for range (cfgSpaceExpSize - cfgSpaceSize) / 8 {
		if at+12 > len(out) {
			break
		}
		header := binary.LittleEndian.Uint32(out[at:])
		if uint16(header) == extCapIDSerial {
			clear(out[at+4 : at+12])
		}
		if at = int(header >> 20 &^ 3); at < cfgSpaceSize {
			break
		}
	}
	return out
}
