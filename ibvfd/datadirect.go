// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/dl"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// besideMovers reports the exporters of NVIDIA's GPU driver, from 580 on and before: GPUs that
// the DMA function of a ConnectX card is beside.
func besideMovers(exporter string) bool { return exporter == "nv_dmabuf" || exporter == "nvidia" }

// dataDirect is what is known of a NIC's DMA function.
type dataDirect struct {
	function pciaddr.Addr
	has      bool
	why      string
}

// DataDirect is the DMA function of the NIC's card, which mlx5's driver has taken for the
// device: a ConnectX-8 or later beside a GPU. It is false with the reason where there is
// none, or where it is not known. mlx5's library is asked, once for each context.
func (c *Context) DataDirect() (function pciaddr.Addr, has bool, why string) {
	if err := c.enter(); err != nil {
		return pciaddr.Addr{}, false, "the context is closed"
	}
	defer c.leave()
	d := c.dataDirect()
	return d.function, d.has, d.why
}

// dataDirect is DataDirect of a context that is in use.
func (c *Context) dataDirect() *dataDirect {
	d := c.direct.Load()
	if d == nil {
		d = c.askDataDirect()
		c.direct.Store(d)
	}
	return d
}

func (c *Context) askDataDirect() *dataDirect {
	if driver, err := c.file.Identify(); err != nil || driver != uverbs.DriverMLX5 {
		return &dataDirect{why: "the NIC's driver is not mlx5"}
	}
	dir, err := c.v.DataDirect()
	var unloaded *dl.Error
	switch {
	case errors.As(err, &unloaded):
		return &dataDirect{why: "libmlx5 does not load: " + unloaded.Reason + "; " + unloaded.Remedy()}
	case errors.Is(err, explain.NoSymbol):
		return &dataDirect{why: "the installed libmlx5 cannot say: mlx5dv_get_data_direct_sysfs_path is of rdma-core 54"}
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return &dataDirect{why: "mlx5's driver has no DMA function for this NIC"}
	case err != nil:
		return &dataDirect{why: "mlx5dv_get_data_direct_sysfs_path: " + errno.Text(errnoOf(err))}
	}
	function, err := pciaddr.Parse(path.Base(dir))
	if err != nil {
		return &dataDirect{why: fmt.Sprintf("mlx5dv_get_data_direct_sysfs_path answers %q, which names no PCI function", dir)}
	}
	return &dataDirect{function: function, has: true, why: "mlx5's driver has taken " + function.String() + " for this NIC"}
}

// byDataDirect registers by the DMA function where that is the way to the memory. Where it
// is not, or where the kernel refuses, it registers nothing, and why may say so.
func (pd *PD) byDataDirect(attr *MRAttr, fd int) (made registered, why string) {
	if attr.NoDataDirect || attr.Policy == RouteIoctlOnly {
		return made, ""
	}
	d := pd.ctx.dataDirect()
	if !d.has {
		return made, ""
	}
	if !besideMovers(pd.ctx.evidence.lookAt(fd).Exporter) {
		return made, ""
	}
	if attr.IOVA%uint64(os.Getpagesize()) != 0 {
		return made, fmt.Sprintf("not by the NIC's DMA function %v: that takes an IOVA that is aligned to pages", d.function)
	}
	v, err := pd.v.RegDataDirect(attr.Offset, attr.Length, attr.IOVA, fd, uint32(attr.Access))
	if err != nil {
		return made, fmt.Sprintf("not by the NIC's DMA function %v: %s", d.function, errno.Text(errnoOf(err)))
	}
	return fromVerbs(v), fmt.Sprintf("the NIC's DMA function %v moves the bytes (Data Direct)", d.function)
}
