// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"slices"
	"testing"
)

// What syslog(2) answers has the lines of /dev/kmsg, in another form.
func TestSyslogLines(t *testing.T) {
	for _, c := range []struct {
		text  string
		lines []string
		cut   bool
		err   error
	}{
		{"<5>[    0.000000] Linux version 6.12\n<6>[    0.100000] ACPI: x] y\n", []string{"Linux version 6.12", "ACPI: x] y"}, false, nil},
		{"<6>[    0.000000] Booting Linux on physical CPU 0x0\n<5>[    0.000000] Linux version 6.12\n", []string{"Booting Linux on physical CPU 0x0", "Linux version 6.12"}, false, nil},
		{"<6>[  812.000001] DMAR: fault\n", []string{"DMAR: fault"}, true, nil},
		{"<6>no time is printed", []string{"no time is printed"}, true, nil},
		{"\n", []string{""}, true, nil},
		{"<4>[    0.000000] Starting a sandbox...\n", nil, false, errNoRecord},
		{"", nil, false, errNoRecord},
	} {
		lines, cut, err := syslogLines(c.text)
		if !slices.Equal(lines, c.lines) || cut != c.cut || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v, %v", c.text, lines, cut, err)
		}
	}
}

// Asking may be refused, and never crashes.
func TestAskLog(t *testing.T) {
	if k := askLog(); (k.err == nil) != (len(k.lines) > 0) {
		t.Errorf("%d lines, %v", len(k.lines), k.err)
	}
}
