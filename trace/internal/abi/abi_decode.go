// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"fmt"
	"unsafe"
)

// recordFixed is how many bytes of a record the programs always send.
const recordFixed = int(unsafe.Offsetof(Record{}.Ranges))

// Decode copies an event out of the ring. It returns one of *Record,
// *Export, *Callers, *Event. The error says that the event is of an unknown type, or too short.
func Decode(data []byte) (any, error) {
	if len(data) < int(unsafe.Sizeof(Head{})) {
		return nil, fmt.Errorf("event of %d bytes", len(data))
	}
	var head Head
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&head)), unsafe.Sizeof(head)), data)
	switch head.Type {
	case EventRecord:
		r := new(Record)
		if len(data) < recordFixed {
			return nil, fmt.Errorf("record of %d bytes, at least %d expected", len(data), recordFixed)
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r)), data)
		// The ring rounds sizes up: the bytes behind the record are not data.
		if want := r.sent(); len(data) < want {
			return nil, fmt.Errorf("record of %d bytes with %d ranges and %d resources, %d expected", len(data), r.NRanges, r.NResources, want)
		}
		return r, nil
	case EventExport, EventModule:
		x := new(Export)
		if len(data) < int(unsafe.Sizeof(*x)) {
			return nil, fmt.Errorf("export event of %d bytes", len(data))
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(x)), unsafe.Sizeof(*x)), data)
		return x, nil
	}
	if head.Type == EventCallers {
		c := new(Callers)
		if len(data) < int(unsafe.Sizeof(*c)) {
			return nil, fmt.Errorf("callers of %d bytes", len(data))
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(c)), unsafe.Sizeof(*c)), data)
		return c, nil
	}
	if head.Type == 0 || head.Type >= EventTracking {
		return nil, fmt.Errorf("event of unknown type %d", head.Type)
	}
	e := new(Event)
	if len(data) < int(unsafe.Sizeof(*e)) {
		return nil, fmt.Errorf("event of type %d with %d bytes", head.Type, len(data))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(e)), unsafe.Sizeof(*e)), data)
	return e, nil
}

// sent returns how many bytes of the record the programs have sent: those up to its last range or
// resource.
func (r *Record) sent() int {
	if n := len(r.SentResources()); n > 0 {
		return int(unsafe.Offsetof(r.Resources)) + n*int(unsafe.Sizeof(r.Resources[0]))
	}
	return recordFixed + len(r.SentRanges())*int(unsafe.Sizeof(r.Ranges[0]))
}

// SentRanges returns the ranges that the record has.
func (r *Record) SentRanges() []Range { return r.Ranges[:min(int(r.NRanges), MaxRanges)] }

// SentResources returns the resources that the record has.
func (r *Record) SentResources() []Resource {
	return r.Resources[:min(int(r.NResources), MaxResources)]
}

// SentSteps returns the steps that the record has.
func (r *Record) SentSteps() []Step { return r.Steps[:min(int(r.NSteps), MaxSteps)] }

// RecordSize is the size in bytes of a whole record, as an iterator writes it.
const RecordSize = int(unsafe.Sizeof(Record{}))

// Bytes returns the memory of the configuration, for the map.
func (c *Config) Bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(c)), unsafe.Sizeof(*c))
}

// WindowBytes returns the memory of the windows, for the map.
func WindowBytes(w []Window) []byte {
	if len(w) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), len(w)*int(unsafe.Sizeof(w[0])))
}

// Text returns the C string in an array, without the terminating 0.
func Text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Names returns the names of the functions, the innermost first.
func (c *Callers) Names() []string {
	out := make([]string, 0, MaxCallers)
	for i := range c.Name {
		if s := Text(c.Name[i][:]); s != "" {
			out = append(out, s)
		}
	}
	return out
}
