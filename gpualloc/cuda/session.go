// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"sync"

	"github.com/gpurdma/gpurdma/gpualloc/internal/runtimelib"
)

// exportFunction is the call that this package is about.
const exportFunction = "cuMemGetHandleForAddressRange"

// flushFunction waits for what RDMA devices have written; since CUDA 11.3.
const flushFunction = "cuFlushGPUDirectRDMAWrites"

// library is how libcuda is found. It comes with the kernel driver and is not
// part of the toolkit.
var library = runtimelib.Spec{
	Names:   []string{"libcuda.so.1", "libcuda.so"},
	Env:     "GPURDMA_LIBCUDA",
	Install: "install the NVIDIA driver (libcuda.so.1 is part of it); in a container, start it with the NVIDIA runtime",
}

// session is an initialised libcuda.
type session struct {
	drv     driver
	version int // cuDriverGetVersion: 12080 is CUDA 12.8
}

// sessions keeps what was loaded: a driver is initialised once a process.
var sessions struct {
	sync.Mutex
	byKey map[string]*session
}

// start loads and initialises the library, or returns the one that is.
// Failures are not remembered: a driver can be installed, and a GPU handed in,
// while the process runs.
func start() (*session, error) {
	sessions.Lock()
	defer sessions.Unlock()
	key := library.Key()
	if s, ok := sessions.byKey[key]; ok {
		return s, nil
	}
	drv, err := load()
	if err != nil {
		return nil, err
	}
	s, err := newSession(drv)
	if err != nil {
		return nil, err
	}
	if sessions.byKey == nil {
		sessions.byKey = map[string]*session{}
	}
	sessions.byKey[key] = s
	return s, nil
}

func newSession(drv driver) (*session, error) {
	if err := failed("cuInit", drv.path(), drv.init(), "", ""); err != nil {
		return nil, err
	}
	v, r := drv.version()
	if err := failed("cuDriverGetVersion", drv.path(), r, "", ""); err != nil {
		return nil, err
	}
	return &session{drv: drv, version: v}, nil
}
