// SPDX-License-Identifier: Apache-2.0

package trace

// Hook is a kernel function that is watched, or why it is not.
type Hook struct {
	Function string `json:"function"`         // the kernel function
	Module   string `json:"module,omitempty"` // the module of the function; a function of vmlinux has none
	// How is how the function is watched: "fentry", "fexit", "kprobe", "kretprobe", "tracepoint". It
	// is not there if the function is not watched.
	How    string `json:"how,omitempty"`
	Absent string `json:"absent,omitempty"` // why the function is not watched
	What   string `json:"what"`             // the events that are not seen without it
}

// Attached reports whether the hook is in place.
func (h Hook) Attached() bool { return h.Absent == "" }
