// SPDX-License-Identifier: Apache-2.0

package talk

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

const size = 1 << 20

var requests = []Request{
	{ID: 1, Kind: Hello},
	{ID: 2, Kind: Offered},
	{ID: 3, Kind: Fill, Work: Work{Offset: 3, Size: size - 3}, Seed: 9, Flip: true},
	{ID: 4, Kind: Check, Work: Work{Offset: size - 1, Size: 1}, Seed: math.MaxUint64},
	{ID: 5, Kind: Receive, Work: Work{Offset: 64, Size: 64, Count: 7, Slots: 3}},
	{ID: 6, Kind: Run, Op: Write, Work: Work{Size: size / 4, Count: 1000, Slots: 4}},
	{ID: 7, Kind: Run, Op: Atomic, Work: Work{Offset: 8, Size: 8, Count: 9, Slots: 1}, Value: 77},
	{ID: 8, Kind: Word, Set: true, Work: Work{Offset: size - 8, Size: 8}, Value: math.MaxUint64},
	{ID: math.MaxUint32, Kind: Bye},
}

func TestRequestsComeBack(t *testing.T) {
	for _, want := range requests {
		var got Request
		if err := got.Decode(want.Append(nil), size); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", want.Kind, got, err, want)
		}
	}
}

// A request that does not fit the buffer, or that is not valid, is refused.
func TestBadRequests(t *testing.T) {
	for name, r := range map[string]Request{
		"no kind":                {},
		"a kind too many":        {Kind: kinds},
		"an operation too many":  {Kind: Run, Op: ops, Work: Work{Size: 1, Count: 1, Slots: 1}},
		"no operation":           {Kind: Run, Work: Work{Size: 1, Count: 1, Slots: 1}},
		"fill nothing":           {Kind: Fill},
		"fill past the end":      {Kind: Fill, Work: Work{Offset: 1, Size: size}},
		"fill from beyond":       {Kind: Fill, Work: Work{Offset: size + 1, Size: 1}},
		"a negative offset":      {Kind: Check, Work: Work{Offset: -1, Size: 1}},
		"a negative size":        {Kind: Check, Work: Work{Size: -1}},
		"a sum that overflows":   {Kind: Check, Work: Work{Offset: 1, Size: math.MaxInt64}},
		"product that overflows": {Kind: Receive, Work: Work{Size: math.MaxInt64/2 + 2, Count: 2, Slots: 2}},
		"more slots than fit":    {Kind: Run, Op: Read, Work: Work{Size: size/2 + 1, Count: 2, Slots: 2}},
		"more slots than count":  {Kind: Run, Op: Read, Work: Work{Size: 1, Count: 1, Slots: 2}},
		"no slots":               {Kind: Run, Op: Read, Work: Work{Size: 1, Count: 1}},
		"count too many":         {Kind: Run, Op: Read, Work: Work{Size: 1, Count: maxCount + 1, Slots: 1}},
		"count of 32 bits":       {Kind: Run, Op: Read, Work: Work{Size: 1, Count: math.MaxUint32, Slots: math.MaxUint32}},
		"a word askew":           {Kind: Word, Work: Work{Offset: 4, Size: 8}},
		"a word past the end":    {Kind: Word, Work: Work{Offset: size, Size: 8}},
		"an atomic of 4 bytes":   {Kind: Run, Op: Atomic, Work: Work{Size: 4, Count: 1, Slots: 1}},
		"an atomic askew":        {Kind: Run, Op: Atomic, Work: Work{Offset: 4, Size: 8, Count: 1, Slots: 1}},
	} {
		var got Request
		if err := got.Decode(r.Append(nil), size); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	good := requests[5].Append(nil)
	for i := range good {
		var got Request
		if err := got.Decode(good[:i], size); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d of %d bytes: %v", i, len(good), err)
		}
	}
}

// A message of another version is told from nonsense, with its number, and
// whatever follows the head.
func TestAnotherVersion(t *testing.T) {
	var r Request
	b := append(head(nil, Version+1, 42), "whatever there will be"...)
	if err := r.Decode(b, size); !errors.Is(err, ErrVersion) || r.ID != 42 || !strings.Contains(err.Error(), fmt.Sprintf("version %d, this program %d", Version+1, Version)) {
		t.Errorf("request %d: %v", r.ID, err)
	}
	var a Answer
	if err := a.Decode(append(head(nil, answerBit|7, 42), 1)); !errors.Is(err, ErrVersion) || a.ID != 42 {
		t.Errorf("answer %d: %v", a.ID, err)
	}
	if err := a.Decode((&Request{Kind: Bye}).Append(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a request for an answer: %v", err)
	}
}

func TestAnswersComeBack(t *testing.T) {
	for _, want := range []Answer{
		{ID: 1, Status: Done},
		{ID: 2, Status: Failed, Text: [4]string{"no\u00a0room, \u00fc"}},
		{ID: 3, Status: Done, Value: 1 << 40, Extra: 5, Text: [4]string{"udmabuf", "rxe0", "staged", "asked for"}},
		{ID: 4, Status: Done, Finding: Finding{Wrong: 3, First: 9, Last: 90, Want: []byte("0123456789abcdef"), Got: []byte{1}}},
	} {
		var got Answer
		data := want.Append(nil)
		if err := got.Decode(data); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		for i := range data {
			if err := got.Decode(data[:i]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%d of %d bytes: %v", i, len(data), err)
			}
		}
	}
}

func TestTextIsCutAndClean(t *testing.T) {
	var got Answer
	data := (&Answer{Status: Failed, Text: [4]string{"\x1b[2J\n" + strings.Repeat("x", 5000), "more"}}).Append(nil)
	if err := got.Decode(data); err != nil || len(data) > MaxMessage || !strings.HasPrefix(got.Text[0], "?[2J?xxx") {
		t.Errorf("%d bytes, %q, %v", len(data), got.Text, err)
	}
}

func FuzzRequest(f *testing.F) {
	for _, r := range requests {
		f.Add(r.Append(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		if err := r.Decode(data, size); err != nil {
			return
		}
		if back := r.Append(nil); !bytes.Equal(back, data) {
			t.Errorf("% x is read as %+v, which is % x", data, r, back)
		}
		switch r.Kind {
		case Receive, Run:
			for _, i := range []int{0, r.Slots - 1, r.Count - 1} {
				if at := r.At(i); at < 0 || at+r.Size > size {
					t.Errorf("operation %d of %+v is at %d", i, r, at)
				}
			}
		case Fill, Check, Word:
			if r.Offset < 0 || r.Size <= 0 || r.Size > size-r.Offset {
				t.Errorf("%+v", r)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add((&Answer{Status: Done, Text: [4]string{"a", "b", "c", "d"}, Finding: Finding{Want: []byte{1}, Got: []byte{2}}}).Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var a Answer
		if err := a.Decode(data); err == nil && len(a.Want) > sampleSize {
			t.Errorf("%+v", a)
		}
	})
}

type memory []byte

func (m memory) ReadAt(p []byte, off int64) (int, error)  { return copy(p, m[off:]), nil }
func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func TestPattern(t *testing.T) {
	p := Pattern{Seed: 5}
	m := make(memory, 2*stretch+77)
	if err := p.FillAt(m, 0, int64(len(m))); err != nil {
		t.Fatal(err)
	}
	// The same, however it is cut.
	if err := p.FillAt(m, 13, stretch+1); err != nil {
		t.Fatal(err)
	}
	if f, err := p.CheckAt(m, 3, int64(len(m))-3); err != nil || f.Wrong != 0 {
		t.Errorf("its own bytes: %+v, %v", f, err)
	}
	for _, other := range []Pattern{{Seed: 5, Flip: true}, {Seed: 6}, {Seed: 4}} {
		if f, _ := other.CheckAt(m, 0, int64(len(m))); f.Wrong < int64(len(m))*9/10 || other.Flip && f.Wrong != int64(len(m)) {
			t.Errorf("%+v finds %d wrong bytes of %d", other, f.Wrong, len(m))
		}
	}
	m[stretch+5] ^= 1
	m[2*stretch+6] ^= 0x80
	f, err := p.CheckAt(m, 1, int64(len(m))-1)
	if err != nil || f.Wrong != 2 || f.First != stretch+5 || f.Last != 2*stretch+6 || len(f.Got) != sampleSize || f.Got[0]^f.Want[0] != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}
