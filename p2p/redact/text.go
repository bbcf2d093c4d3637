// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"maps"
	"slices"
	"strings"
)

// tokens match PCI addresses, then what is written with colons (MACs, addresses of IPv6, GUIDs), then words.
var tokens = expression(`(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\b` +
	`|[0-9A-Fa-f]{0,8}(?::[0-9A-Fa-f]{0,8}){2,}(?:\.[0-9.]*)?` +
	`|[0-9A-Za-z_.'\x{80}-\x{10ffff}-]+`)

var (
	aPCIAddress = expression(`^(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	// aQuantity matches short numbers, with a unit, and versions. An address of IPv4 has four parts.
	aQuantity = expression(`^(?:0*\d{1,4}(?:\.\d{1,5}){0,2}[kKmMgGtTx]?[bB]?|0x[0-9a-fA-F]{1,4})$`)
	// aPlace matches what stands behind a device in a list of ports and processes: mlx5_0:1:2.
	aPlace = expression(`^:\d{1,3}:\d{1,3}$`)
	// aRange matches the numbers of devices in a list: mlx5_[0-3].
	aRange = expression(`^\d{1,3}-\d{1,3}$`)
	aModel = expression(`^(?:[ABDHKLMNPRTV][A-Z]?\d{1,4}[A-Z]{0,2}|G[BH]\d{2,3}[A-Z]?|SXM\d?|HBM\d[eE]?|\d{2,4}(?:HX|Ti|E|D|X)|\d{1,3}[ABCQVX]|\d{1,3}GB)$`)
)

// text replaces the words of a text one by one, and what is no text.
func text(s string, word func(string) string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' && c != '\n' || c == 0x7f {
			return '?'
		}
		return c
	}, s)
	return tokens.ReplaceAllStringFunc(s, func(token string) string {
		core := strings.Trim(token, ".-'")
		if core == "" {
			return token
		}
		front, back, _ := strings.Cut(token, core)
		return front + word(core) + back
	})
}

// device is the name of a PCI function, or the name in a snapshot of a device. It is "" for other words.
func (r *Redactor) device(token string) string {
	switch known := r.devices[token]; {
	case known != "":
		return known
	case aPCIAddress.MatchString(token), common(ofRDMA, token), common(ofNet, token):
		return token
	}
	return ""
}

func allOf(all []string, is func(string) bool) bool {
	for _, one := range all {
		if !is(one) {
			return false
		}
	}
	return true
}

// leading matches what libraries read at the beginning of a value: a number, or a letter that means no.
var leading = expression(`^(?:\d{1,3}|[nNfF])`)

// value is the value of a variable or a parameter: words of the vocabulary, short numbers, and devices. Libraries compare words in
// any case of letters, and some take the beginning of a device's name for all devices that begin so.
func (r *Redactor) value(s string) string {
	if r.manyNumbers(s) {
		return r.whole(s, r.name(ofWord, s))
	}
	return text(s, func(token string) string {
		switch device := r.device(token); {
		case device != "":
			return device
		case words.has(token) || lowWords.has(strings.ToLower(token)) || aQuantity.MatchString(token) || aPlace.MatchString(token) || aRange.MatchString(token):
			return token
		case r.stems[token] != "": // the beginning of devices' names
			return r.whole(token, r.stems[token])
		}
		if all := r.beginning(token); all != "" {
			return r.whole(token, all)
		}
		if anIPv4.MatchString(token) {
			return r.name(ofWord, token)
		}
		return r.whole(token, leading.FindString(token)+r.name(ofWord, token))
	})
}

// manyNumbers reports a value with more numbers than libraries want: they may be the parts of an address, or of one number.
func (r *Redactor) manyNumbers(value string) bool {
	const most = 3
	numbers := 0
	for _, word := range aWordOfValue.FindAllString(value, -1) {
		if aDecimal.MatchString(word) {
			numbers++
		}
	}
	return numbers > most
}

var (
	aWordOfValue = expression(`[0-9A-Za-z_:.-]+`)
	aDecimal     = expression(`^\d+$`)
)

// beginning is what stands for the beginning of some devices' names: itself, if it begins a name that is kept, and the names in the
// snapshot of the other devices.
func (r *Redactor) beginning(token string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.devices)) {
		if !strings.HasPrefix(name, token) {
			continue
		}
		now := r.devices[name]
		if now == name { // the beginning of a name that is kept is kept
			now = token
		}
		if !slices.Contains(out, now) {
			out = append(out, now)
		}
	}
	return strings.Join(out, ",")
}

// maker is the name of a company or a product, of which only words of the vocabulary are kept.
func (r *Redactor) maker(s string) string {
	is := func(part string) bool { return words.has(part) || aRackUnit.MatchString(part) }
	return text(s, func(token string) string {
		if is(token) || allOf(strings.FieldsFunc(token, joined), is) {
			return token
		}
		if r.products[token] == "" {
			r.products[token] = "product-" + letters(len(r.products))
		}
		return r.products[token]
	})
}

var aRackUnit = expression(`^\d{1,2}U$`)

func joined(c rune) bool { return c == '-' || c == '_' }

// product is the name of a product, or of a company.
func (r *Redactor) product(s string) string {
	is := func(part string) bool {
		return words.has(part) || aQuantity.MatchString(part) || aModel.MatchString(part)
	}
	return r.whole(s, text(s, func(token string) string {
		if is(token) || allOf(strings.FieldsFunc(token, joined), is) {
			return token
		}
		return r.name(ofWord, token)
	}))
}
