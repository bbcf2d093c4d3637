// SPDX-License-Identifier: Apache-2.0

package dl

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		text, reason string
		missing      bool
		remedy       string
	}{
		{"libx.so.1: cannot open shared object file: No such file or directory", "cannot open shared object file: No such file or directory", true, ""},
		{"Error loading shared library libx.so.1: No such file or directory", "No such file or directory", true, ""},
		{"libx.so.1: failed to map segment from shared object", "failed to map segment from shared object", false, "ulimit -v"},
		{"libx.so.1: cannot open shared object file: Too many open files", "cannot open shared object file: Too many open files", false, "RLIMIT_NOFILE"},
		{"libdep.so.2: cannot open shared object file: Too many open files", "libdep.so.2: cannot open shared object file: Too many open files", false, "RLIMIT_NOFILE"},
		{"libx.so.1: cannot open shared object file: Permission denied", "cannot open shared object file: Permission denied", false, "ldd"},
		// The library is there, and what it needs is not.
		{"libdep.so.2: cannot open shared object file: No such file or directory", "libdep.so.2: cannot open shared object file: No such file or directory", false, "ldd"},
		{"Error loading shared library libdep.so.2: No such file or directory (needed by /lib/libx.so.1)", "Error loading shared library libdep.so.2: No such file or directory (needed by /lib/libx.so.1)", false, "ldd"},
		{"/lib/libx.so.1: file too short", "/lib/libx.so.1: file too short", false, "ldd"},
	} {
		err := explain("libx.so.1", c.text)
		if err.Reason != c.reason || errors.Is(err, fs.ErrNotExist) != c.missing {
			t.Errorf("%q: reason %q, not there: %v", c.text, err.Reason, errors.Is(err, fs.ErrNotExist))
		}
		if err.Error() != "load libx.so.1: "+c.reason {
			t.Errorf("%q: %v", c.text, err)
		}
		if !c.missing && !strings.Contains(err.Remedy(), c.remedy) {
			t.Errorf("%q: the remedy is %q, want %q in it", c.text, err.Remedy(), c.remedy)
		}
	}
}
