// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
)

// Resident is the number of bytes that a GPU's DRM driver counts for this process in the GPU's memory. It
// needs no privileges.
type Resident struct {
	Size          int64 // of the buffer
	Without       int64 // the count before the buffer was allocated
	Before, After int64 // the registration
	Err           error // why the counts are not known
}

// Judge says whether the buffer stayed in the GPU's memory. The count is that of the whole
// process: it is evidence about the buffer only if it grew when the buffer was allocated. The
// result is unknown if the driver does not count the buffer, as amdgpu does not before a program
// uses it, or if other memory was freed.
func (r *Resident) Judge() (Result, string) {
	switch {
	case r == nil:
		return ResultUnknown, "the GPU's driver was not asked"
	case r.Err != nil:
		return ResultUnknown, r.Err.Error()
	case r.Before < r.Size:
		return ResultUnknown, fmt.Sprintf("by fdinfo, the GPU's driver counts %d bytes in the GPU's memory, and not the %d of the buffer", r.Before, r.Size)
	case r.Before-r.Without < r.Size:
		return ResultUnknown, fmt.Sprintf("by fdinfo, the process's memory in the GPU grew by %d bytes when the buffer of %d was allocated: the driver may not count it", r.Before-r.Without, r.Size)
	case r.Before-r.After >= r.Size:
		return ResultFail, fmt.Sprintf("by fdinfo, %d bytes were in the GPU's memory before the registration, and %d after it: the buffer of %d was moved", r.Before, r.After, r.Size)
	case r.After < r.Before:
		return ResultUnknown, fmt.Sprintf("by fdinfo, %d bytes left the GPU's memory, which is less than the buffer's %d", r.Before-r.After, r.Size)
	}
	return ResultPass, fmt.Sprintf("by fdinfo, the process's memory in the GPU grew by %d bytes with the buffer of %d, and did not shrink when it was registered", r.Before-r.Without, r.Size)
}
