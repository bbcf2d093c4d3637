// SPDX-License-Identifier: Apache-2.0

package datadirect

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/internal/dl"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Reaches reports whether a DMA function is the way to an exporter's memory: the exporters
// of NVIDIA's GPU driver, nv_dmabuf from version 580 on and nvidia before.
func Reaches(exporter string) bool { return exporter == "nv_dmabuf" || exporter == "nvidia" }

// Answer is what mlx5's library says of a device's DMA function.
type Answer struct {
	Function pciaddr.Addr
	Has      bool   // false: the device has none, or it is not known
	Why      string // the ground of Has
}

// Ask calls directory, which is mlx5dv_get_data_direct_sysfs_path on the device.
func Ask(directory func() (string, error)) Answer {
	dir, err := directory()
	var unloaded *dl.Error
	switch {
	case errors.As(err, &unloaded):
		return Answer{Why: "libmlx5 does not load: " + unloaded.Reason + "; " + unloaded.Remedy()}
	case errors.Is(err, explain.NoSymbol):
		return Answer{Why: "the installed libmlx5 cannot say: mlx5dv_get_data_direct_sysfs_path is of rdma-core 54"}
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return Answer{Why: "mlx5's driver has no DMA function for this NIC"}
	case err != nil:
		n, _ := errno.Of(err)
		return Answer{Why: "mlx5dv_get_data_direct_sysfs_path: " + errno.Text(n)}
	}
	function, err := pciaddr.Parse(path.Base(dir))
	if err != nil {
		return Answer{Why: fmt.Sprintf("mlx5dv_get_data_direct_sysfs_path answers %q, which names no PCI function", dir)}
	}
	return Answer{Function: function, Has: true, Why: "mlx5's driver has taken " + function.String() + " for this NIC"}
}
