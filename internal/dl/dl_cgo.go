// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package dl

/*
#cgo linux LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

// A symbol's address and the error must come from one call into C: dlerror's
// text belongs to the thread.
struct found {
	void *addr;
	char *error; // the caller frees it
};

static char *copy(const char *text)
{
	size_t n = 0;
	char *c;

	if (!text)
		text = "no reason given";
	while (text[n])
		n++;
	c = malloc(n + 1);
	for (size_t i = 0; c && i <= n; i++)
		c[i] = text[i];
	return c;
}

static struct found load(const char *name)
{
	struct found f = { .addr = dlopen(name, RTLD_NOW | RTLD_LOCAL) };

	if (!f.addr)
		f.error = copy(dlerror());
	return f;
}

static struct found lookup(void *lib, const char *name, const char *version)
{
	struct found f;

	dlerror();
	f.addr = *version ? dlvsym(lib, name, version) : dlsym(lib, name);
	f.error = f.addr ? NULL : copy(dlerror());
	return f;
}

// path_of returns the file that addr was loaded from; it belongs to the linker.
static const char *path_of(void *addr)
{
	Dl_info info;

	return addr && dladdr(addr, &info) ? info.dli_fname : NULL;
}
*/
import "C"

import (
	"fmt"
	"path/filepath"
	"unsafe"
)

// Library is a loaded shared library. Its methods may be called from several
// goroutines at once.
type Library struct {
	name   string
	handle unsafe.Pointer
}

// Open loads a library by its soname ("libibverbs.so.1"), which the dynamic
// linker searches in its usual places, or by a path. Loading again returns the
// same library. An [*Error] has the linker's reason for a refusal.
func Open(name string) (*Library, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	f := C.load(c)
	if f.addr == nil {
		return nil, explain(name, take(f.error))
	}
	return &Library{name, f.addr}, nil
}

// Sym returns the address of a symbol in exactly that version
// ("ibv_alloc_pd", "IBVERBS_1.1"): the default version may be a later one with
// other parameters. An empty version takes the default one: for libraries
// without symbol versions.
func (l *Library) Sym(name, version string) (unsafe.Pointer, error) {
	n, v := C.CString(name), C.CString(version)
	defer C.free(unsafe.Pointer(n))
	defer C.free(unsafe.Pointer(v))
	f := C.lookup(l.handle, n, v)
	if f.addr == nil {
		return nil, fmt.Errorf("%s: %s@%s: %w (%s)", l.name, name, version, ErrNoSymbol, take(f.error))
	}
	return f.addr, nil
}

func take(c *C.char) string {
	defer C.free(unsafe.Pointer(c))
	return C.GoString(c)
}

// PathOf is the file that a symbol was loaded from, with symbolic links
// followed: its name tells the library's full version. "" if unknown.
func PathOf(sym unsafe.Pointer) string {
	c := C.path_of(sym)
	if c == nil {
		return ""
	}
	path := C.GoString(c)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
