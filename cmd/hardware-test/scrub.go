// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os"
	"regexp"
	"strings"
)

// scrubber takes the names of machine and places, and numbers of hardware, out of texts.
// p2pcheck redacts the snapshot itself.
type scrubber struct{ names []replacement }

// replacement is a pattern and what stands for it.
type replacement struct {
	pattern *regexp.Regexp
	with    string
}

// newScrubber knows this machine's names.
func newScrubber() scrubber {
	var s scrubber
	if dir, err := os.Getwd(); err == nil {
		s.add(dir, ".")
	}
	if home, err := os.UserHomeDir(); err == nil && home != "/root" {
		s.add(home, "~")
	}
	if host, err := os.Hostname(); err == nil && host != "localhost" {
		s.add(host, "HOST")
	}
	return s
}

// add replaces a name where it is a word.
func (s *scrubber) add(name, with string) {
	if len(name) < 3 {
		return
	}
	left := `\b`
	if strings.HasPrefix(name, "/") {
		left = ""
	}
	s.names = append(s.names, replacement{regexp.MustCompile(left + regexp.QuoteMeta(name) + `\b`), with})
}

// numbers are of one piece of hardware or one network, each with what stands for it.
var numbers = []replacement{
	{regexp.MustCompile(`\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b`), "UUID"},
	{regexp.MustCompile(`\b[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){3}\b`), "GUID"},
	{regexp.MustCompile(`\b[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5,}\b`), "MAC"},
	{regexp.MustCompile(`\b(\d{1,3}\.){3}\d{1,3}\b`), "IPV4"},
	{regexp.MustCompile(`\b(en|ib|ro|eth|rocep|ibp)[a-z]*x[0-9a-f]{12,}\b`), "DEVICE"},
}

// colons are what may be an address of IPv6.
var colons = regexp.MustCompile(`\b[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{0,4}){2,7}\b`)

// text is a text without them.
func (s scrubber) text(text string) string {
	text = colons.ReplaceAllStringFunc(text, func(word string) string {
		if a, err := netip.ParseAddr(word); err == nil && a.Is6() {
			return "IPV6"
		}
		return word
	})
	for _, all := range [][]replacement{s.names, numbers} {
		for _, r := range all {
			text = r.pattern.ReplaceAllString(text, r.with)
		}
	}
	return text
}
