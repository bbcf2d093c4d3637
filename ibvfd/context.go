// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/datadirect"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/kernelonly"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/internal/lkeys"
	"github.com/gpurdma/gpurdma/ibvfd/internal/mrnumbers"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/devnode"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/ioctl"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Context is an opened RDMA device (struct ibv_context). Its methods may be
// called from several goroutines at once.
type Context struct {
	parent
	name     string
	info     ibdev.Info
	sys      sysfs.FS
	v        libibverbs.Context
	file     *uverbs.File // v's descriptor, for ioctls of our own
	evidence evidence

	objects objects
	async   asyncEvents

	support atomic.Pointer[explain.Answers]   // nil until it is known
	direct  atomic.Pointer[datadirect.Answer] // the same
	numbers mrnumbers.Cache
	foreign lkeys.Set // of memory that the CPU does not reach by its keys
}

// Open opens the RDMA device of that name ("mlx5_0", "rxe0") through
// libibverbs. The error is [ErrNotBuilt], [ErrNoLibrary], [ErrBrokenLibrary],
// [ibdev.ErrNoDevice], or says which device node could not be opened and why. The caller closes the
// Context after everything that was made from it.
func Open(name string) (*Context, error) {
	v, err := libibverbs.Load()
	if err != nil {
		return nil, err
	}
	return open(v, name, sysfs.New(""), ioctl.Kernel)
}

// open opens name on v. Tests bring their own sysfs and transport.
func open(v libibverbs.Library, name string, sys sysfs.FS, t ioctl.Transport) (*Context, error) {
	info, err := ibdev.Look(sys.Root(), name)
	if err != nil {
		return nil, err
	}
	vctx, err := v.Open(name)
	if err != nil {
		return nil, explainOpen(name, info, err)
	}
	return newContext(vctx, name, info, sys, t), nil
}

// wrap is open of what is open already.
func wrap(vctx libibverbs.Context, name string, sys sysfs.FS, t ioctl.Transport) (*Context, error) {
	info, err := ibdev.Look(sys.Root(), name)
	if err != nil {
		return nil, err
	}
	return newContext(vctx, name, info, sys, t), nil
}

// borrowed is a context that is not closed.
type borrowed struct {
	libibverbs.Context
	closed func()
}

func (b borrowed) Close() error {
	if b.closed != nil {
		b.closed()
	}
	return nil
}

func newContext(vctx libibverbs.Context, name string, info ibdev.Info, sys sysfs.FS, t ioctl.Transport) *Context {
	return &Context{name: name, info: info, sys: sys, v: vctx, file: uverbs.Wrap(t, vctx.CmdFD()), evidence: evidenceOf(sys)}
}

// explainOpen says why libibverbs could not open a device that sysfs lists.
func explainOpen(name string, info ibdev.Info, err error) error {
	e := failed("ibv_open_device", name, err)
	switch {
	case errors.Is(err, ibdev.ErrNoDevice):
		e.Detail = "the kernel has the device, libibverbs does not list it"
		if info.Uverbs == "" {
			e.Remedy = "modprobe ib_uverbs"
		} else {
			e.Remedy = "install the device's provider (Debian: apt-get install ibverbs-providers)"
		}
	case info.Uverbs != "":
		// libibverbs reports little, and the node itself says more.
		detail, remedy := devnode.Explain(info.Uverbs, err, "modprobe ib_uverbs")
		if nodeErr := uverbs.Access(info.Uverbs); nodeErr != nil {
			e.Err = nodeErr
			if n, ok := errno.Of(nodeErr); ok {
				e.Err = n
			}
			detail, remedy = devnode.Explain(info.Uverbs, nodeErr, "modprobe ib_uverbs, or let udev make the node")
		}
		e.Detail, e.Remedy = info.Uverbs, remedy
		if detail != "" {
			e.Detail += ": " + detail
		}
	}
	return e
}

// Name returns the device's name: "rxe0".
func (c *Context) Name() string { return c.name }

// Info returns the attributes of the device that sysfs shows now. After the device
// was removed, it returns those from when the device was opened.
func (c *Context) Info() ibdev.Info {
	if now, err := ibdev.Read(c.sys.Root(), c.name); err == nil {
		return now
	}
	return c.info // removed meanwhile
}

// QueryDevice returns the device's limits.
func (c *Context) QueryDevice() (ibdev.DeviceAttr, error) {
	if err := c.enter(); err != nil {
		return ibdev.DeviceAttr{}, err
	}
	defer c.leave()
	a, err := c.v.QueryDevice()
	if err != nil {
		return ibdev.DeviceAttr{}, failed("ibv_query_device", c.name, err)
	}
	return a, nil
}

// QueryPort returns the state of a port; ports count from 1.
func (c *Context) QueryPort(port int) (ibdev.PortAttr, error) {
	if err := c.enter(); err != nil {
		return ibdev.PortAttr{}, err
	}
	defer c.leave()
	return c.queryPort(port)
}

func (c *Context) queryPort(port int) (ibdev.PortAttr, error) {
	if port < 1 || port > 255 {
		return ibdev.PortAttr{}, c.badPort(port)
	}
	a, err := c.v.QueryPort(port)
	if err != nil {
		e := failed("ibv_query_port", c.name, err)
		e.Detail = fmt.Sprintf("port %d", port)
		return ibdev.PortAttr{}, e
	}
	return a, nil
}

func (c *Context) badPort(port int) error {
	e := failed("ibv_query_port", c.name, unix.EINVAL)
	e.Detail = fmt.Sprintf("port %d of %d", port, len(c.info.Ports))
	e.Remedy = "ports count from 1"
	return e
}

// Close closes the device. It answers [failure.ErrInUse], and closes nothing,
// while PDs, CQs or queue pairs of it are open. Closing again does nothing.
func (c *Context) Close() error {
	return c.close("ibv_close_device", c.name, func() error {
		if err := c.async.close(c.v.Close); err != nil {
			return failed("ibv_close_device", c.name, err)
		}
		return nil
	})
}

// OpenKernel opens the RDMA device of that name without libibverbs, which may
// be missing: by the kernel's ioctls, from Go. Its PDs register dma-bufs, on
// [RouteIoctl], and nothing else: host memory, CQs, queue pairs and all that
// needs them answer EOPNOTSUPP.
//
// It needs Linux 5.12, and a driver that makes contexts and PDs without data of
// the provider's. mlx5 does not: the error says so.
func OpenKernel(name string) (*Context, error) {
	sys := sysfs.New("")
	info, err := ibdev.Look(sys.Root(), name)
	if err != nil {
		return nil, err
	}
	return openKernel(name, info, sys, ioctl.Kernel)
}

func openKernel(name string, info ibdev.Info, sys sysfs.FS, t ioctl.Transport) (*Context, error) {
	if info.Uverbs == "" {
		e := failed("open", name, unix.ENOENT)
		e.Detail, e.Remedy = "ib_uverbs does not serve this device", "modprobe ib_uverbs"
		return nil, e
	}
	f, err := uverbs.Open(t, info.Uverbs)
	if err != nil {
		why := notOpened(info.Uverbs, err, refusal.Machine{Sys: sys})
		e := failed("GET_CONTEXT", name, err)
		e.Detail, e.Remedy = why.Reason, why.Remedy
		return nil, e
	}
	return &Context{name: name, info: info, sys: sys, v: kernelonly.Context(f), file: f, evidence: evidenceOf(sys)}, nil
}
