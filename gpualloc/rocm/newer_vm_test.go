// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package rocm

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// newerRoot is the build root of the running kernel's series (kernel/buildroot.sh),
// whose Debian has a runtime that exports dma-bufs. Debian 12's C library is too
// old for it.
var newerRoot = "../../build/roots/" + os.Getenv("GPURDMA_KERNEL")

// inNewerRoot says to a process of this program that it is the one that runs on
// that root's libraries.
const inNewerRoot = "GPURDMA_IN_NEWER_ROOT"

// A real runtime, new enough, on a machine without an AMD GPU.
//
//testbed:kernel 7.2
func TestVMNewerRuntimeWithoutDevice(t *testing.T) {
	testenv.VM(t)
	if os.Getenv(inNewerRoot) != "" {
		_, err := Devices(gpualloc.Env{})
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, OutOfResources) {
			t.Errorf("got %v, want ErrNotExist or OutOfResources", err)
		}
		doubles.Words(t, err, "/dev/kfd", "amdgpu")
		return
	}
	root, err := filepath.Abs(newerRoot)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	cmd := exec.Command(filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", lib,
		self, "-test.v", "-test.run=^TestVMNewerRuntimeWithoutDevice$")
	cmd.Env = append(os.Environ(), inNewerRoot+"=1", "GPURDMA_LIBHSA="+filepath.Join(lib, "libhsa-runtime64.so.1"))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
