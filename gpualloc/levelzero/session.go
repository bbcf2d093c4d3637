// SPDX-License-Identifier: Apache-2.0

package levelzero

import (
	"sync"

	"github.com/gpurdma/gpurdma/gpualloc/internal/runtimelib"
)

// library is how the loader is found.
var library = runtimelib.Spec{
	Names:   []string{"libze_loader.so.1"},
	Env:     "GPURDMA_LIBZE",
	Install: "install the Level Zero loader (libze1, or level-zero) and the GPU's driver for it",
}

// session is an initialised library, with a context for each driver that has
// been used.
type session struct {
	drv driver

	mu       sync.Mutex
	contexts map[driverHandle]contextHandle
}

var sessions struct {
	sync.Mutex
	byKey map[string]*session
}

// start loads and initialises the library, or returns the one that is.
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
	if err := failed("zeInit", drv.path(), drv.init(), "", ""); err != nil {
		return nil, err
	}
	return &session{drv: drv, contexts: map[driverHandle]contextHandle{}}, nil
}

// context returns the driver's context, which lives as long as the process:
// buffers outlive allocators, and a context costs little.
func (s *session) context(h driverHandle, on string) (contextHandle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx, ok := s.contexts[h]; ok {
		return ctx, nil
	}
	ctx, r := s.drv.context(h)
	if r != Success {
		return 0, failed("zeContextCreate", on, r, "", "")
	}
	s.contexts[h] = ctx
	return ctx, nil
}
