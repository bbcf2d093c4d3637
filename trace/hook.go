// SPDX-License-Identifier: Apache-2.0

package trace

// Hook is a kernel function that is watched, or why it is not.
type Hook struct {
	Function string `json:"function"`
	Module   string `json:"module,omitempty"` // "" for vmlinux
	How      string `json:"how,omitempty"`    // "fentry", "fexit", "kprobe", "kretprobe", "tracepoint"; "" if not attached
	Absent   string `json:"absent,omitempty"` // why it is not attached
	What     string `json:"what"`             // the events that are not seen without it
}

// Attached reports whether the hook is in place.
func (h Hook) Attached() bool { return h.Absent == "" }
