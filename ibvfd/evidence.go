// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/holdings"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// evidence is where a context finds what explains a refusal.
type evidence struct {
	hostLimits func() explain.Memlock // asked when a host registration ends in ENOMEM
	machine    refusal.Machine
	lookAt     func(fd int) explain.Buffer
	kernelBufs func(debugfs string) ([]dmabuf.KernelBuf, error)
}

// evidenceOf are the sources of this machine.
func evidenceOf(sys sysfs.FS) evidence {
	return evidence{explain.ReadMemlock, refusal.Machine{Sys: sys}, explain.LookAt, dmabuf.KernelBufs}
}

// held are the dma-bufs that this process has registered.
var held holdings.Held
