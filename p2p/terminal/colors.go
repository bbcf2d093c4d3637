// SPDX-License-Identifier: Apache-2.0

package terminal

// Colors are the colours of a terminal, or none. The zero value has none.
type Colors struct {
	On   bool
	Mark string // follows the ESC of each colour, for a [Writer] with the same mark
}

// Paint returns text in a colour, which is a parameter of SGR ("31"); "" is no
// colour.
func (c Colors) Paint(color, text string) string {
	if !c.On || color == "" {
		return text
	}
	esc := "\x1b" + c.Mark
	return esc + "[" + color + "m" + text + esc + "[0m"
}
