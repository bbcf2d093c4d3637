// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"strings"
)

// tokens match PCI addresses, then what is written with colons (MACs, addresses of IPv6, GUIDs), then words.
var tokens = expression(`(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\b` +
	`|[0-9A-Fa-f]{0,8}(?::[0-9A-Fa-f]{0,8}){2,}(?:\.[0-9.]*)?` +
	`|[0-9A-Za-z_.\x{80}-\x{10ffff}-]+`)

var (
	aPCIAddress = expression(`^(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	// aQuantity matches short numbers, with a unit, and versions. An address of IPv4 has four parts.
	aQuantity = expression(`^(?:\d{1,4}(?:\.\d{1,3}){0,2}[kKmMgGtTxU]?[bB]?|0x[0-9a-fA-F]{1,4})$`)
	// aPlace matches what stands behind a device in a list of ports and processes: mlx5_0:1:2.
	aPlace = expression(`^:\d{1,3}:\d{1,3}$`)
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
		core := strings.Trim(token, ".-")
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

// value is the value of a variable or a parameter: words of the vocabulary, short numbers, and devices.
func (r *Redactor) value(s string) string {
	return text(s, func(token string) string {
		switch device := r.device(token); {
		case device != "":
			return device
		case words.has(token) || aQuantity.MatchString(token) || aPlace.MatchString(token):
			return token
		case r.stems[token] != "": // the beginning of a device's name
			return r.stems[token]
		}
		return r.whole(token, leading.FindString(token)+r.name(ofWord, token))
	})
}

// product is the name of a product, or of a company.
func (r *Redactor) product(s string) string {
	is := func(part string) bool {
		return words.has(part) || aQuantity.MatchString(part) || aModel.MatchString(part)
	}
	joined := func(c rune) bool { return c == '-' || c == '_' }
	return r.whole(s, text(s, func(token string) string {
		if is(token) || allOf(strings.FieldsFunc(token, joined), is) {
			return token
		}
		return r.name(ofWord, token)
	}))
}
