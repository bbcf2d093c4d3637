// SPDX-License-Identifier: Apache-2.0

package doubles

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static void *function(const char *library, const char *name)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL); // never closed: the package under test does not close it either

	return lib ? dlsym(lib, name) : NULL;
}

// The new context is not left with the thread, which is one of Go's.
static int create(const char *library, uintptr_t *ctx, int device)
{
	int (*make)(void **, unsigned int, int) = function(library, "cuCtxCreate_v2");
	int (*pop)(void **) = function(library, "cuCtxPopCurrent_v2");
	void *made, *popped;
	int r = make && pop ? make(&made, 0, device) : -1;

	if (r)
		return r;
	*ctx = (uintptr_t)made;
	return pop(&popped);
}

static int destroy(const char *library, uintptr_t ctx)
{
	int (*end)(void *) = function(library, "cuCtxDestroy_v2");

	return end ? end((void *)ctx) : -1;
}
*/
import "C"

import (
	"os"
	"testing"
)

func libcuda() *C.char {
	if path := os.Getenv("GPURDMA_LIBCUDA"); path != "" {
		return C.CString(path)
	}
	return C.CString("libcuda.so.1")
}

// NewContext makes a CUDA context that is not the device's primary one, as
// applications do that know nothing of the runtime's.
func NewContext(t testing.TB, device int) uintptr {
	t.Helper()
	var ctx C.uintptr_t
	if r := C.create(libcuda(), &ctx, C.int(device)); r != 0 {
		t.Fatalf("cuCtxCreate: %d", r)
	}
	return uintptr(ctx)
}

// DestroyContext ends it, and frees what was allocated in it.
func DestroyContext(t testing.TB, ctx uintptr) {
	t.Helper()
	if r := C.destroy(libcuda(), C.uintptr_t(ctx)); r != 0 {
		t.Fatalf("cuCtxDestroy: %d", r)
	}
}
