// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"maps"
	"os"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// Modules are those that were loaded since the loader last attached to new ones. The zero
// value has none.
type Modules struct {
	all   bool // any module may have been loaded: the names are not known
	names map[string]bool
}

// AllModules stands for modules whose names are not known.
var AllModules = Modules{all: true}

// Has reports whether the module of that name may have been loaded.
func (m Modules) Has(name string) bool { return m.all || m.names[name] }

// maxNames bounds the modules that are kept by name.
const maxNames = 64

// Add adds a module that was loaded. A set that grows beyond maxNames becomes AllModules.
func (m *Modules) Add(name string) {
	if m.all {
		return
	}
	if m.names == nil {
		m.names = map[string]bool{}
	}
	m.names[name] = true
	if len(m.names) > maxNames {
		*m = AllModules
	}
}

// typesOf returns the kernel's own type information. Reading it takes a while and 20
// MiB, so it is called only where the types are needed.
type typesOf func() (*btf.Cache, *btf.Spec, error)

func onceTypes(read typesOf) typesOf {
	var cache *btf.Cache
	var kernel *btf.Spec
	var err error
	once := sync.OnceFunc(func() { cache, kernel, err = read() })
	return func() (*btf.Cache, *btf.Spec, error) {
		once()
		return cache, kernel, err
	}
}

// readings bounds how often the list of symbols is read while modules come.
const readings = 8

// settled reads the list of symbols until a reading adds nothing. The kernel finds its
// place in the list by number. A module that ends its initialization frees some of its
// symbols, so the later ones move forward, and a reading under way skips some of them.
func settled(read func() (map[string]symbols.Symbol, error)) (map[string]symbols.Symbol, error) {
	found, err := read()
	for n := 1; err == nil && n < readings; n++ {
		var again map[string]symbols.Symbol
		if again, err = read(); err != nil {
			break
		}
		before := len(found)
		maps.Copy(found, again)
		if len(found) == before {
			break
		}
	}
	return found, err
}

// Stop makes a ModuleCame that is under way end early. It is called once.
func (l *Loader) Stop() { close(l.quit) }

// Stopped is closed by Stop.
func (l *Loader) Stopped() <-chan struct{} { return l.quit }

func (l *Loader) stopping() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}

// ModuleCame attaches to the functions of modules that were loaded since the last call. It
// reports whether RDMA is attached now. It holds no lock that the reader waits for: only
// another such call and Close wait until it returns.
func (l *Loader) ModuleCame(came Modules) (bool, error) {
	l.work.Lock()
	defer l.work.Unlock()
	if l.cfg.Tests.ModuleCame != nil {
		l.cfg.Tests.ModuleCame()
	}
	now := l.rdmaNow()
	found, err := settled(func() (map[string]symbols.Symbol, error) {
		if l.core == nil || l.stopping() {
			return nil, os.ErrClosed
		}
		return l.functions()
	})
	if err != nil {
		return l.have["rdma"], err
	}
	types := onceTypes(func() (*btf.Cache, *btf.Spec, error) {
		if l.stopping() {
			return nil, nil, os.ErrClosed
		}
		cache := btf.NewCache()
		kernel, err := cache.Kernel()
		return cache, kernel, err
	})
	l.dropProbes(now)
	if err := l.loadRDMA(types, found, now); err != nil {
		return l.have["rdma"], err
	}
	if !l.cfg.NoExporterHooks {
		err = l.loadExporters(types, found, came)
	}
	return l.have["rdma"], err
}
