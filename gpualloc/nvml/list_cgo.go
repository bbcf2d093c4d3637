// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"math"
	"sync"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// library is NVML's name, in messages and for the dynamic linker.
const library = "libnvidia-ml.so.1"

// one at a time: go-nvml swaps variables of its package when it loads and
// closes the library.
var one sync.Mutex

// list uses the library of that path, the system's for "".
func list(path string) ([]GPU, error) { return with(path, describeAll) }

func confidential(path string) (bool, error) { return with(path, confidentialState) }

func peers(path string) ([]Peer, error) { return with(path, peersOfAll) }

// with asks the library while it is loaded.
func with[T any](path string, ask func(nv.Interface) (T, error)) (T, error) {
	one.Lock()
	defer one.Unlock()
	var opts []nv.LibraryOption
	if path != "" {
		opts = append(opts, nv.WithLibraryPath(path))
	}
	lib := nv.New(opts...)
	if err := failed("nvmlInit", library, lib.Init()); err != nil {
		var none T
		return none, err
	}
	out, err := ask(lib)
	return out, errors.Join(err, failed("nvmlShutdown", library, lib.Shutdown()))
}

// has looks before a call: one of a function that the library does not have
// ends the process.
func has(lib nv.Interface, function string) error {
	if err := lib.Extensions().LookupSymbol(function); err != nil {
		return failed(function, library, nv.ERROR_FUNCTION_NOT_FOUND)
	}
	return nil
}

func confidentialState(lib nv.Interface) (bool, error) {
	const function = "nvmlSystemGetConfComputeState"
	if err := has(lib, function); err != nil {
		return false, err
	}
	state, r := lib.SystemGetConfComputeState()
	if r == nv.ERROR_NOT_SUPPORTED {
		return false, nil // GPUs before Ampere
	}
	return state.CcFeature != nv.CC_SYSTEM_FEATURE_DISABLED, failed(function, library, r)
}

// peerTexts are NVML's words, without its prefix.
var peerTexts = map[nv.GpuP2PStatus]string{
	nv.P2P_STATUS_OK:                         peerOK,
	nv.P2P_STATUS_CHIPSET_NOT_SUPPORTED:      "chipset not supported",
	nv.P2P_STATUS_GPU_NOT_SUPPORTED:          "GPU not supported",
	nv.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "topology not supported",
	nv.P2P_STATUS_DISABLED_BY_REGKEY:         "disabled by a parameter of the driver",
	nv.P2P_STATUS_NOT_SUPPORTED:              "not supported",
}

func peersOfAll(lib nv.Interface) ([]Peer, error) {
	const function = "nvmlDeviceGetP2PStatus"
	if err := has(lib, function); err != nil {
		return nil, err
	}
	n, r := lib.DeviceGetCount()
	if err := failed("nvmlDeviceGetCount", library, r); err != nil {
		return nil, err
	}
	var all []nv.Device
	var at []pciaddr.Addr
	for i := range n {
		d, r := lib.DeviceGetHandleByIndex(i)
		on := fmt.Sprintf("GPU %d", i)
		if err := failed("nvmlDeviceGetHandleByIndex", on, r); err != nil {
			return nil, err
		}
		where, r := d.GetPciInfo()
		if err := failed("nvmlDeviceGetPciInfo", on, r); err != nil {
			return nil, err
		}
		all, at = append(all, d), append(at, address(where))
	}
	var out []Peer
	for i := range all {
		for j := i + 1; j < len(all); j++ {
			p := Peer{A: at[i], B: at[j]}
			for way, text := range map[nv.GpuP2PCapsIndex]*string{nv.P2P_CAPS_INDEX_READ: &p.Read, nv.P2P_CAPS_INDEX_WRITE: &p.Write} {
				status, r := all[i].GetP2PStatus(all[j], way)
				if err := failed(function, fmt.Sprintf("GPUs %d and %d", i, j), r); err != nil {
					return nil, err
				}
				if *text = peerTexts[status]; *text == "" {
					*text = fmt.Sprintf("unknown (%d)", status)
				}
			}
			out = append(out, p)
		}
	}
	return out, nil
}

func address(where nv.PciInfo) pciaddr.Addr {
	return pciaddr.Addr{Domain: where.Domain, Bus: uint8(where.Bus), Device: uint8(where.Device)}
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
	g.PCI = address(where)
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
	e := &failure.Error{Op: op, Device: on}
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
