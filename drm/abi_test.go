// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/internal/abicheck"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

var abiStructs = []abicheck.Struct{
	{C: "drm_version", Go: abiVersion{}, Fields: []string{"version_major", "version_minor", "version_patchlevel", "", "name_len", "name", "date_len", "date", "desc_len", "desc"}},
	{C: "drm_gem_close", Go: abiGemClose{}, Fields: []string{"handle", "pad"}},
	{C: "drm_get_cap", Go: abiGetCap{}, Fields: []string{"capability", "value"}},
	{C: "drm_prime_handle", Go: abiPrimeHandle{}, Fields: []string{"handle", "flags", "fd"}},
	{C: "drm_mode_create_dumb", Go: abiCreateDumb{}, Fields: []string{"height", "width", "bpp", "flags", "handle", "pitch", "size"}},
	{C: "drm_mode_map_dumb", Go: abiMapDumb{}, Fields: []string{"handle", "pad", "offset"}},
	{C: "drm_mode_destroy_dumb", Go: abiDestroyDumb{}, Fields: []string{"handle"}},
}

var abiNumbers = []abicheck.Number{
	{C: "DRM_IOCTL_VERSION", Go: uint64(reqVersion)},
	{C: "DRM_IOCTL_GEM_CLOSE", Go: uint64(reqGemClose)},
	{C: "DRM_IOCTL_GET_CAP", Go: uint64(reqGetCap)},
	{C: "DRM_IOCTL_DROP_MASTER", Go: uint64(reqDropMaster)},
	{C: "DRM_IOCTL_PRIME_HANDLE_TO_FD", Go: uint64(reqPrimeHandleToFD)},
	{C: "DRM_IOCTL_PRIME_FD_TO_HANDLE", Go: uint64(reqPrimeFDToHandle)},
	{C: "DRM_IOCTL_MODE_CREATE_DUMB", Go: uint64(reqCreateDumb)},
	{C: "DRM_IOCTL_MODE_MAP_DUMB", Go: uint64(reqMapDumb)},
	{C: "DRM_IOCTL_MODE_DESTROY_DUMB", Go: uint64(reqDestroyDumb)},
	{C: "DRM_CAP_DUMB_BUFFER", Go: uint64(CapDumbBuffer)},
	{C: "DRM_CAP_PRIME", Go: uint64(CapPrime)},
	{C: "DRM_PRIME_CAP_IMPORT", Go: PrimeImport},
	{C: "DRM_PRIME_CAP_EXPORT", Go: PrimeExport},
	{C: "DRM_CLOEXEC", Go: uint64(Cloexec)},
	{C: "DRM_RDWR", Go: uint64(ReadWrite)},
}

// Golden request numbers, for machines without the headers.
func TestRequestNumbers(t *testing.T) {
	for name, c := range map[string][2]uint32{
		"DRM_IOCTL_VERSION":            {reqVersion, 0xc0406400},
		"DRM_IOCTL_GEM_CLOSE":          {reqGemClose, 0x40086409},
		"DRM_IOCTL_GET_CAP":            {reqGetCap, 0xc010640c},
		"DRM_IOCTL_DROP_MASTER":        {reqDropMaster, 0x641f},
		"DRM_IOCTL_PRIME_HANDLE_TO_FD": {reqPrimeHandleToFD, 0xc00c642d},
		"DRM_IOCTL_PRIME_FD_TO_HANDLE": {reqPrimeFDToHandle, 0xc00c642e},
		"DRM_IOCTL_MODE_CREATE_DUMB":   {reqCreateDumb, 0xc02064b2},
		"DRM_IOCTL_MODE_MAP_DUMB":      {reqMapDumb, 0xc01064b3},
		"DRM_IOCTL_MODE_DESTROY_DUMB":  {reqDestroyDumb, 0xc00464b4},
	} {
		if c[0] != c[1] {
			t.Errorf("%s = %#x, want %#x", name, c[0], c[1])
		}
	}
}

func TestHeaders(t *testing.T) {
	// The kernel's own headers are in include/drm; Debian leaves them to libdrm.
	headers := abicheck.Headers{
		Files: []string{"fcntl.h", "drm.h", "drm_mode.h"}, Flags: []string{"-I/usr/include/libdrm", "-I/usr/include/drm"},
		Package: "libdrm-dev",
	}
	headers.Compare(t, abiStructs, abiNumbers)
}

// Module drm carries the types on stock kernels; a kernel with DRM built in has
// them in vmlinux.
func TestVMLayoutOfThisKernel(t *testing.T) {
	testenv.VM(t)
	spec, err := btf.LoadKernelModuleSpec("drm")
	if err != nil {
		t.Logf("no BTF of module drm (%v): trying vmlinux", err)
		if spec, err = btf.LoadKernelSpec(); err != nil {
			t.Fatal(err)
		}
	}
	if err := abicheck.BTF(spec, abiStructs...); err != nil {
		t.Error(err)
	}
}
