// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
)

func TestVerifySizes(t *testing.T) {
	for _, c := range []struct {
		asked int64
		sizes []int64 // 0: no report
		want  string
	}{
		{4097, []int64{8 << 10, 0, 8 << 10}, "8 KiB (asked for: 4.0 KiB, 4097 bytes; rounded up)"},
		{4097, []int64{8 << 10, 2 << 20, 64 << 10}, "8 KiB to 2 MiB (asked for: 4.0 KiB, 4097 bytes; rounded up)"},
		{4 << 20, []int64{4 << 20}, "4 MiB"},
		{4 << 20, []int64{0}, "4 MiB"},
		{4 << 20, nil, "4 MiB"},
	} {
		r := &Result{Size: c.asked}
		for _, n := range c.sizes {
			row := Row{NIC: "rxe0"}
			if n > 0 {
				row.Report = &canary.Report{Size: n}
			}
			r.Rows = append(r.Rows, row)
		}
		var text strings.Builder
		if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "buffers of "+c.want+", ") {
			t.Errorf("%d bytes asked for, %v used: want %q in\n%s", c.asked, c.sizes, c.want, &text)
		}
	}
}

// An exporter that exists and refuses this user is a failure with its errno. One that
// does not exist is none.
func TestNothingToVerify(t *testing.T) {
	answers := map[string]error{
		"udmabuf":     &failure.Error{Op: "open", Device: "/dev/udmabuf", Err: unix.EACCES, Remedy: "run as root"},
		"cuda":        &failure.Error{Op: "cuInit", Device: "cuda", Err: unix.EPERM},
		"heap:system": &failure.Error{Op: "open", Device: "/dev/dma_heap/system", Err: unix.ENOENT},
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
		var list []buffer.NotTried
		for _, s := range c.specs {
			list = append(list, buffer.NotTried{Spec: s})
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
