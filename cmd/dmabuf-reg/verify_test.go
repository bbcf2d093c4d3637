// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
)

// What is there and refuses this user is a failure with its errno; what is not
// there is not.
func TestNothingToVerify(t *testing.T) {
	answers := map[string]error{
		"udmabuf":     &dmabuf.Error{Op: "open", Device: "/dev/udmabuf", Err: unix.EACCES, Remedy: "run as root"},
		"cuda":        &dmabuf.Error{Op: "cuInit", Device: "cuda", Err: unix.EPERM},
		"heap:system": &dmabuf.Error{Op: "open", Device: "/dev/dma_heap/system", Err: unix.ENOENT},
	}
	open := func(spec string) (gpualloc.Allocator, error) { return nil, answers[spec] }
	for _, c := range []struct {
		specs  []string
		status int
		errnos []string
	}{
		{[]string{"heap:system"}, cli.ExitUnavailable, []string{""}},
		{[]string{"heap:system", "udmabuf"}, cli.ExitFailed, []string{"EACCES"}},
		{[]string{"udmabuf", "cuda"}, cli.ExitFailed, []string{"EACCES", "EPERM"}},
	} {
		var list []notTried
		for _, s := range c.specs {
			list = append(list, notTried{Spec: s})
		}
		err := nothingToVerify(list, open)
		if status := cli.Status(err); status != c.status {
			t.Errorf("%q: exit status %d, want %d: %v", c.specs, status, c.status, err)
		}
		told := cli.Explain(err)
		if len(told) != len(c.errnos) {
			t.Errorf("%q: %+v, want %d errors", c.specs, told, len(c.errnos))
			continue
		}
		for i, e := range told {
			if name := c.errnos[i]; name != "" && (e.Errno == nil || e.Errno.Name != name || !errors.Is(err, answers[e.Subject])) {
				t.Errorf("%q: %+v, want %s", c.specs, e, name)
			}
		}
	}
}
