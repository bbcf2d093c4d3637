// SPDX-License-Identifier: Apache-2.0

package rocm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/runtimelib"
	"github.com/gpurdma/gpurdma/internal/devnode"
)

// exportFunction is the call that this package is about.
const exportFunction = "hsa_amd_portable_export_dmabuf"

// library is how the runtime is found.
var library = runtimelib.Spec{
	Names:   []string{"libhsa-runtime64.so.1"},
	Env:     "GPURDMA_LIBHSA",
	Dirs:    []string{"/opt/rocm/lib"},
	Install: "install ROCm's HSA runtime (hsa-rocr), and put its directory in the library path or the file's name in GPURDMA_LIBHSA",
}

// session is an initialised runtime.
type session struct{ drv driver }

var sessions struct {
	sync.Mutex
	byKey map[string]*session
}

// start loads and initialises the library, or returns the one that is.
func start(env gpualloc.Env) (*session, error) {
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
	s, err := newSession(drv, env)
	if err != nil {
		return nil, err
	}
	if sessions.byKey == nil {
		sessions.byKey = map[string]*session{}
	}
	sessions.byKey[key] = s
	return s, nil
}

// newSession initialises the runtime, for the life of the process.
func newSession(drv driver, env gpualloc.Env) (*session, error) {
	st := drv.init()
	if st == Success {
		return &session{drv: drv}, nil
	}
	detail, remedy := kfd(env)
	return nil, failed("hsa_init", drv.path(), st, remedy, "%s", detail)
}

// kfd explains why the runtime does not start: it says OutOfResources whatever
// is wrong with the device node.
func kfd(env gpualloc.Env) (detail, remedy string) {
	dev := env.Dev
	if dev == "" {
		dev = "/dev"
	}
	node := filepath.Join(dev, "kfd")
	err := unix.Faccessat(unix.AT_FDCWD, node, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
	switch {
	case err == nil:
		return "", "look for amdgpu messages in the kernel log"
	case errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("there is no %s: no AMD GPU, or no driver", node), "load amdgpu (with HSA_AMD), or pass /dev/kfd and /dev/dri into the container"
	}
	return devnode.Explain(node, err, "load amdgpu (with HSA_AMD)")
}
