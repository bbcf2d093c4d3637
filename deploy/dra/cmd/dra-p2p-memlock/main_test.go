// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The hook says what went wrong in the kernel's log, too, in one line, and says nothing if nothing did.
func TestHook(t *testing.T) {
	const nobody = 1<<22 + 1 // above PID_MAX_LIMIT
	for name, c := range map[string]struct {
		args     []string
		in, says string
	}{
		"no argument":  {nil, "{}", "want one argument"},
		"no limit":     {[]string{"much"}, `{"pid":1}`, `"much" is no limit`},
		"no state":     {[]string{"4096"}, "", "is not as a runtime writes it"},
		"neither":      {[]string{"much"}, "", `"much" is no limit`},
		"no process":   {[]string{"4096"}, fmt.Sprintf(`{"id":"c\nd","pid":%d}`, nobody), `container "c\nd": raise RLIMIT_MEMLOCK of process 4194305: prlimit: no such process; it starts with`},
		"this process": {[]string{"1"}, fmt.Sprintf(`{"id":"c","pid":%d}`, os.Getpid()), ""},
	} {
		file := filepath.Join(t.TempDir(), "kmsg")
		log, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		hook(c.args, strings.NewReader(c.in), &stderr, log)
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(stderr.String(), c.says) || c.says == "" && stderr.Len() > 0 || len(text) > 0 && string(text) != "<4>"+stderr.String() || (len(text) > 0) != (c.says != "") {
			t.Errorf("%s: %q, %q, %v", name, &stderr, text, err)
		}
		if n := strings.Count(string(text), "\n"); n > 1 {
			t.Errorf("%s: %d lines", name, n)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil || l.Cur < 4096 {
		t.Errorf("%+v, %v", l, err)
	}
}
