// SPDX-License-Identifier: Apache-2.0

package pci

import "encoding/binary"

// Tags of vital product data: PCI 3.0, appendix I.
const (
	vpdLarge    = 0x80
	vpdReadOnly = 0x90
	vpdEnd      = 0x78
)

// VPDKeyword is a field ("SN", "V3") of the read-only part of a function's vital
// product data; "" if that does not have it, or is not understood.
func VPDKeyword(vpd []byte, keyword string) string {
	for len(vpd) > 0 && vpd[0] != vpdEnd {
		head, size := 1, int(vpd[0]&7)
		if vpd[0]&vpdLarge != 0 {
			if len(vpd) < 3 {
				return ""
			}
			head, size = 3, int(binary.LittleEndian.Uint16(vpd[1:]))
		}
		if head+size > len(vpd) {
			return ""
		}
		if fields := vpd[head : head+size]; vpd[0] == vpdReadOnly {
			for len(fields) >= 3 && 3+int(fields[2]) <= len(fields) {
				end := 3 + int(fields[2])
				if string(fields[:2]) == keyword {
					return string(fields[3:end])
				}
				fields = fields[end:]
			}
		}
		vpd = vpd[head+size:]
	}
	return ""
}

// VPDField is a field of vital product data.
type VPDField struct{ Keyword, Value string }

// VPD is vital product data of a function without a name, with the fields in their order. Fields
// that do not fit into 64 KiB are left out, and so is what a value has beyond 255 bytes.
func VPD(fields ...VPDField) []byte {
	var list []byte
	for _, f := range fields {
		value := f.Value[:min(len(f.Value), 0xff)]
		if len(f.Keyword) != 2 || len(list)+3+len(value) > 0xffff {
			continue
		}
		list = append(append(append(list, f.Keyword...), byte(len(value))), value...)
	}
	out := binary.LittleEndian.AppendUint16([]byte{vpdReadOnly}, uint16(len(list)))
	return append(append(out, list...), vpdEnd)
}
