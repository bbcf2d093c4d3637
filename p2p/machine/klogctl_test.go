// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// syslog(2) returns the same lines as /dev/kmsg, in another form.
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
		{"<4>[    0.000000] Starting a sandbox...\n", nil, false, machine.ErrNoRecord},
		{"", nil, false, machine.ErrNoRecord},
	} {
		lines, cut, err := machine.SyslogLines(c.text)
		if !slices.Equal(lines, c.lines) || cut != c.cut || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v, %v", c.text, lines, cut, err)
		}
	}
}

// AskLog returns either lines or an error.
func TestAskLog(t *testing.T) {
	if k := machine.AskLog(); (k.Err == nil) != (len(k.Lines) > 0) {
		t.Errorf("%d lines, %v", len(k.Lines), k.Err)
	}
}
