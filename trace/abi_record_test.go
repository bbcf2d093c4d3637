// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"unsafe"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// recordBytes is a whole record, as the ring carries it.
func recordBytes(w *abi.Record) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(w)), unsafe.Sizeof(*w))...)
}
