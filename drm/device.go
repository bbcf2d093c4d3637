// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/devnode"
	"github.com/gpurdma/gpurdma/internal/fd"
	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// Device is an open DRM node. Its methods may be called from several
// goroutines at once.
type Device struct {
	path string
	fd   *fd.FD
	t    ioctl.Transport
}

// kernel repeats EAGAIN, with which DRM drivers ask for a restart.
var kernel = ioctl.RetryAgain(ioctl.Kernel)

// Open opens a node read-write. On a primary node it gives up the mastership
// that the kernel may hand to its opener.
//
// Errors: fs.ErrNotExist, fs.ErrPermission, and errors.ErrUnsupported for a
// file that is no DRM node. The caller closes the Device.
func Open(path string) (*Device, error) { return open(path, kernel) }

func open(path string, t ioctl.Transport) (*Device, error) {
	f, err := fd.Open(path, unix.O_RDWR)
	if err != nil {
		e := &failure.Error{Op: "open", Device: path, Err: err}
		var n unix.Errno
		if errors.As(err, &n) {
			e.Err = n
		}
		e.Detail, e.Remedy = devnode.Explain(path, err, "load the GPU's driver (modprobe vgem for one without hardware)")
		return nil, e
	}
	d := &Device{path: path, fd: f, t: t}
	if strings.HasPrefix(filepath.Base(path), "renderD") {
		return d, nil
	}
	err = f.Do(func(raw int) error { return dropMaster(t, raw) })
	if err == nil || errors.Is(err, unix.EINVAL) { // EINVAL: we are not master
		return d, nil
	}
	_ = f.Close()
	return nil, d.fail("DRM_IOCTL_DROP_MASTER", "", err)
}

// fail wraps an error, nil included.
func (d *Device) fail(op, detail string, err error) error {
	if err == nil {
		return nil
	}
	e := &failure.Error{Op: op, Device: d.path, Detail: detail, Err: err}
	switch {
	case errors.Is(err, unix.ENOTTY):
		e.Remedy = "this is no DRM node, or its driver does not know the call"
	case errors.Is(err, unix.EACCES) && strings.HasPrefix(filepath.Base(d.path), "renderD"):
		e.Remedy = "render nodes refuse this call: use the device's primary node (card…)"
	case errors.Is(err, unix.EMFILE):
		e.Remedy = "raise RLIMIT_NOFILE (ulimit -n)"
	}
	return e
}

// failHandle is fail for a call on a GEM handle.
func (d *Device) failHandle(op string, handle uint32, err error) error {
	if err == nil {
		return nil // an allocation takes no time to describe what has not happened
	}
	return d.fail(op, fmt.Sprintf("handle %d", handle), err)
}

// Path is the node's path.
func (d *Device) Path() string { return d.path }

// Do calls fn with the descriptor, which belongs to the Device: fn must not
// close it.
func (d *Device) Do(fn func(fd int) error) error { return d.fd.Do(fn) }

// Close closes the node, and with it all GEM handles that are left. Memory that
// was exported stays. A second Close does nothing.
func (d *Device) Close() error { return d.fd.Close() }

// Version is the driver's answer to DRM_IOCTL_VERSION. Newer drivers leave
// Date empty.
type Version struct {
	Major, Minor, Patch int
	Name                string // "vgem"
	Date                string
	Desc                string
}

// Version returns the driver's name and version.
func (d *Device) Version() (Version, error) {
	var v Version
	err := d.fd.Do(func(raw int) (err error) {
		v, err = version(d.t, raw)
		return err
	})
	return v, d.fail("DRM_IOCTL_VERSION", "", err)
}

// Capability is a capability of a driver, by its number in DRM_IOCTL_GET_CAP.
type Capability uint64

// Capabilities, from include/uapi/drm/drm.h.
const (
	CapDumbBuffer Capability = 0x1 // DRM_CAP_DUMB_BUFFER: 1 if the driver has dumb buffers; EOPNOTSUPP without a display says nothing
	CapPrime      Capability = 0x5 // DRM_CAP_PRIME: PrimeImport, PrimeExport
)

// Bits of CapPrime's value. Since Linux 6.6 both are always set.
const (
	PrimeImport = 0x1 // DRM_PRIME_CAP_IMPORT
	PrimeExport = 0x2 // DRM_PRIME_CAP_EXPORT
)

// Cap returns a capability's value; EINVAL or EOPNOTSUPP if the kernel does not
// know the capability, or a node of this type does not have it.
func (d *Device) Cap(c Capability) (uint64, error) {
	var value uint64
	err := d.fd.Do(func(raw int) (err error) {
		value, err = getCap(d.t, raw, uint64(c))
		return err
	})
	return value, d.fail("DRM_IOCTL_GET_CAP", fmt.Sprintf("capability %#x", uint64(c)), err)
}

// GEMClose drops a GEM handle. Memory that was exported stays.
func (d *Device) GEMClose(handle uint32) error {
	err := d.fd.Do(func(raw int) error { return gemClose(d.t, raw, handle) })
	return d.failHandle("DRM_IOCTL_GEM_CLOSE", handle, err)
}
