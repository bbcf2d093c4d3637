// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"math"
	"sync"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/pci"
)

// library is NVML's name, in messages and for the dynamic linker.
const library = "libnvidia-ml.so.1"

// one at a time: go-nvml swaps variables of its package when it loads and
// closes the library.
var one sync.Mutex

// list uses the library of that path, the system's for "".
func list(path string) ([]GPU, error) {
	one.Lock()
	defer one.Unlock()
	var opts []nv.LibraryOption
	if path != "" {
		opts = append(opts, nv.WithLibraryPath(path))
	}
	lib := nv.New(opts...)
	if err := failed("nvmlInit", library, lib.Init()); err != nil {
		return nil, err
	}
	gpus, err := describeAll(lib)
	return gpus, errors.Join(err, failed("nvmlShutdown", library, lib.Shutdown()))
}

func describeAll(lib nv.Interface) ([]GPU, error) {
	n, r := lib.DeviceGetCount()
	if err := failed("nvmlDeviceGetCount", library, r); err != nil {
		return nil, err
	}
	var out []GPU
	for i := range n {
		d, r := lib.DeviceGetHandleByIndex(i)
		if err := failed("nvmlDeviceGetHandleByIndex", fmt.Sprintf("GPU %d", i), r); err != nil {
			return nil, err
		}
		g, err := describe(i, d)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

func describe(i int, d nv.Device) (GPU, error) {
	g := GPU{Index: i}
	on := fmt.Sprintf("GPU %d", i)
	var r nv.Return
	if g.Name, r = d.GetName(); r != nv.SUCCESS {
		return g, failed("nvmlDeviceGetName", on, r)
	}
	if g.UUID, r = d.GetUUID(); r != nv.SUCCESS {
		return g, failed("nvmlDeviceGetUUID", on, r)
	}
	where, r := d.GetPciInfo()
	if r != nv.SUCCESS {
		return g, failed("nvmlDeviceGetPciInfo", on, r)
	}
	g.PCI = pci.Addr{Domain: where.Domain, Bus: uint8(where.Bus), Device: uint8(where.Device)}
	memory, r := d.GetMemoryInfo()
	if r != nv.SUCCESS {
		return g, failed("nvmlDeviceGetMemoryInfo", on, r)
	}
	g.Memory = Usage{bytes(memory.Total), bytes(memory.Used)}
	switch bar, r := d.GetBAR1MemoryInfo(); r {
	case nv.SUCCESS:
		g.BAR1 = &Usage{bytes(bar.Bar1Total), bytes(bar.Bar1Used)}
	case nv.ERROR_NOT_SUPPORTED, nv.ERROR_FUNCTION_NOT_FOUND:
	default:
		return g, failed("nvmlDeviceGetBAR1MemoryInfo", on, r)
	}
	return g, nil
}

func bytes(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// failed is nil for success. It takes NVML's words now: once the library is
// closed, they are gone.
func failed(op, on string, r nv.Return) error {
	e := &dmabuf.Error{Op: op, Device: on}
	switch r {
	case nv.SUCCESS:
		return nil
	case nv.ERROR_LIBRARY_NOT_FOUND:
		e.Err, e.Detail = ErrNoDriver, "cannot load "+library
		e.Remedy = "install the NVIDIA driver, if this machine has such a GPU"
		return e
	case nv.ERROR_DRIVER_NOT_LOADED:
		e.Err, e.Detail = ErrNoDriver, "the library is there, its kernel module is not loaded"
		e.Remedy = "load it (modprobe nvidia); dmesg says why it does not"
		return e
	case nv.ERROR_NO_PERMISSION:
		e.Remedy = "run as root, or give this user /dev/nvidia*"
	case nv.ERROR_LIB_RM_VERSION_MISMATCH:
		e.Remedy = "library and kernel module are of different versions: reboot, or reload the module"
	}
	e.Err = &Error{Code: int(r), Text: r.Error()}
	return e
}
