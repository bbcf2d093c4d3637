// SPDX-License-Identifier: Apache-2.0

package runtimelib

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

// The reason is per thread: both in one crossing.
static void *gpurdma_dlopen(const char *name, char **reason)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	*reason = NULL;
	if (!lib) {
		const char *text = dlerror();
		*reason = strdup(text ? text : "no reason given");
	}
	return lib;
}

// The file behind a library, "" if the linker does not say.
static char *gpurdma_path(void *lib)
{
	struct link_map *map = NULL;

	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) || !map || !map->l_name)
		return strdup("");
	return strdup(map->l_name);
}
*/
import "C"

import "unsafe"

// Library is a loaded library. It stays loaded: drivers keep threads and state
// in the process that unloading would break.
type Library struct {
	handle unsafe.Pointer
	path   string
}

// Open loads the first candidate that is there.
func Open(s Spec) (*Library, error) {
	var reasons []string
	found := false
	for _, name := range s.candidates() {
		handle, reason := open(name)
		if handle != nil {
			path := C.gpurdma_path(handle)
			defer C.free(unsafe.Pointer(path))
			return &Library{handle: handle, path: C.GoString(path)}, nil
		}
		if !notThere(name, reason) {
			found, reasons = true, []string{reason}
			break
		}
		reasons = append(reasons, reason)
	}
	if !found && len(reasons) > 1 {
		reasons = reasons[:1] // the others say the same of other names
	}
	return nil, s.failed(reasons, found)
}

func open(name string) (unsafe.Pointer, string) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var reason *C.char
	handle := C.gpurdma_dlopen(cname, &reason)
	if handle != nil {
		return handle, ""
	}
	defer C.free(unsafe.Pointer(reason))
	return nil, C.GoString(reason)
}

// Path is the file that was loaded.
func (l *Library) Path() string { return l.path }

// Symbol returns the address of a function, nil if the library has none of
// that name.
func (l *Library) Symbol(name string) unsafe.Pointer {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	return C.dlsym(l.handle, cname)
}
