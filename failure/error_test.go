// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
)

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{Op: "alloc"}, "alloc"},
		{Error{Op: "alloc", Err: ErrInUse}, "alloc: still in use (EBUSY)"},
		{
			Error{Op: "alloc", Device: "/dev/udmabuf", Detail: "size 1 GiB over the limit of 64 MiB", Err: unix.EINVAL, Remedy: "raise udmabuf.size_limit_mb"},
			"alloc on /dev/udmabuf: size 1 GiB over the limit of 64 MiB: EINVAL (22: invalid argument); raise udmabuf.size_limit_mb",
		},
		{
			Error{Op: "attach", Err: errno.ENOTSUPP},
			"attach: ENOTSUPP (524: operation is not supported (kernel-internal errno))",
		},
		{Error{Op: "attach", Err: unix.Errno(3999)}, "attach: errno 3999 (no name known)"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestErrorIs(t *testing.T) {
	for _, c := range []struct {
		err, target error
		want        bool
	}{
		{unix.ENOTTY, errors.ErrUnsupported, true},
		{errno.ENOTSUPP, errors.ErrUnsupported, true},
		{unix.EOPNOTSUPP, errors.ErrUnsupported, true},
		{unix.ENOSYS, errors.ErrUnsupported, true},
		{unix.EINVAL, errors.ErrUnsupported, false},
		{unix.EACCES, fs.ErrPermission, true},
		{unix.EPERM, fs.ErrPermission, true},
		{unix.ENOENT, fs.ErrNotExist, true},
		{unix.ENODEV, fs.ErrNotExist, true},
		{unix.ENXIO, fs.ErrNotExist, true},
		{unix.ENXIO, errors.ErrUnsupported, false},
		{os.ErrClosed, os.ErrClosed, true},
		{ErrInUse, errors.ErrUnsupported, false},
		{fmt.Errorf("wrapped: %w", unix.ENOTTY), errors.ErrUnsupported, true},
		{unix.EINVAL, unix.EINVAL, true},
	} {
		if got := errors.Is(&Error{Op: "x", Err: c.err}, c.target); got != c.want {
			t.Errorf("errors.Is(%v, %v) = %v", c.err, c.target, got)
		}
	}
	var n unix.Errno
	if err := fmt.Errorf("outer: %w", &Error{Op: "x", Err: unix.EBUSY}); !errors.As(err, &n) || n != unix.EBUSY {
		t.Error("errors.As does not find the errno")
	}
}
