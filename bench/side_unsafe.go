// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// awaitByte spins until a byte of memory that a NIC writes has a value. It reads
// the word in which the byte is, whose other bytes may be anything.
func awaitByte(mem []byte, at int, value byte) {
	word := (*uint32)(unsafe.Pointer(&mem[at&^3]))
	for {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], atomic.LoadUint32(word))
		if b[at&3] == value {
			return
		}
	}
}
