// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// LinkState is the state of one link, with the highest speed and width that both of its
// ends support.
type LinkState struct {
	Speed, MaxSpeed float64 // GT/s
	Width, MaxWidth int
}

// LinkAbove returns the state of the link above a function; false if it is not known.
// LinkAbove calls read for other functions, such as the port above. The link of a virtual function is that of its physical
// function.
func LinkAbove(f Function, read func(pciaddr.Addr) (Function, error)) (LinkState, bool) {
	var s LinkState
	if f.PF != nil {
		if pf, err := read(*f.PF); err == nil {
			f = pf
		}
	}
	if f.Speed == "" || f.Width == "" {
		return s, false
	}
	var ok [4]bool
	s.Speed, ok[0] = Gigatransfers(f.Speed)
	s.Width, ok[1] = lanes(f.Width)
	s.MaxSpeed, ok[2] = Gigatransfers(f.MaxSpeed)
	s.MaxWidth, ok[3] = lanes(f.MaxWidth)
	if len(f.Upstream) > 0 {
		up, _ := read(f.Upstream[0])
		if speed, ok := Gigatransfers(up.MaxSpeed); ok {
			s.MaxSpeed = min(s.MaxSpeed, speed)
		}
		if width, ok := lanes(up.MaxWidth); ok {
			s.MaxWidth = min(s.MaxWidth, width)
		}
	}
	return s, ok == [4]bool{true, true, true, true} && s.Speed <= s.MaxSpeed && s.Width <= s.MaxWidth
}

// Gigatransfers reads a link's speed in GT/s, such as "16.0 GT/s PCIe" or "16 GT/s"; false
// for another text.
func Gigatransfers(s string) (float64, bool) {
	number, _, ok := strings.Cut(s, " ")
	n, err := strconv.ParseFloat(number, 64)
	return n, ok && err == nil && n > 0 && n < 1e4
}

func lanes(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n > 0 && n <= 64
}

// String returns speed and width in words.
func (s LinkState) String() string {
	text := fmt.Sprintf("%g GT/s x%d", s.Speed, s.Width)
	if s.Speed < s.MaxSpeed || s.Width < s.MaxWidth {
		text += fmt.Sprintf(" of %g GT/s x%d", s.MaxSpeed, s.MaxWidth)
	}
	return text
}

// Lanes returns the width alone in words, for a link whose speed changes with its load.
func (s LinkState) Lanes() string {
	if s.Width < s.MaxWidth {
		return fmt.Sprintf("x%d of x%d", s.Width, s.MaxWidth)
	}
	return fmt.Sprintf("x%d", s.Width)
}

// Inside reports whether f is the GPU g itself, or a port of a switch inside of the GPU.
// Such a port has the GPU's vendor, and its link slows down with the GPU's.
func (f Function) Inside(g Function) bool {
	return f.PCI == g.PCI || f.Vendor == g.Vendor && slices.Contains(g.Upstream, f.PCI)
}

// Best returns the state of the link at the highest speed and width that both ends
// support.
func (s LinkState) Best() LinkState {
	s.Speed, s.Width = s.MaxSpeed, s.MaxWidth
	return s
}

// Rate returns the bytes a second that the link carries in each direction, without the
// bits of its encoding. Packet headers are among these bytes.
func (s LinkState) Rate() uint64 {
	coding := 128.0 / 130
	switch {
	case s.Speed <= 5:
		coding = 8.0 / 10
	case s.Speed >= 64:
		coding = 236.0 / 256 // flits
	}
	return uint64(s.Speed * 1e9 * coding * float64(s.Width) / 8)
}
