// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
	"github.com/gpurdma/gpurdma/gpualloc/internal/runtimelib"
)

func TestNoLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	t.Setenv("GPURDMA_LIBCUDA", path)
	_, err := Devices(gpualloc.Env{})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	doubles.Words(t, err, path, "GPURDMA_LIBCUDA")
}

func TestBrokenLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(path, []byte("no library\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPURDMA_LIBCUDA", path)
	_, err := Devices(gpualloc.Env{})
	if !errors.Is(err, runtimelib.ErrBroken) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrBroken", err)
	}
	doubles.Words(t, err, path)
}

// A library without the functions with _v2 is from before CUDA 4.
func TestAncientLibrary(t *testing.T) {
	double(t, "cuda-ancient")
	_, err := Devices(gpualloc.Env{})
	if !errors.Is(err, runtimelib.ErrTooOld) {
		t.Errorf("got %v, want ErrTooOld", err)
	}
	doubles.Words(t, err, "cuDeviceTotalMem_v2", "libcuda.so.1")
}

func TestInitFails(t *testing.T) {
	tests := []struct {
		code Result
		is   error
		word string
	}{
		{NoDevice, fs.ErrNotExist, "nvidia-smi"},
		{NotPermitted, fs.ErrPermission, "/dev/nvidia"},
		{StubLibrary, errors.ErrUnsupported, "stub"},
		{SystemNotReady, SystemNotReady, "fabricmanager"},
		{SystemDriverMismatch, SystemDriverMismatch, "different versions"},
		{Unknown, Unknown, "kernel log"},
	}
	for _, tt := range tests {
		t.Run(tt.code.Name(), func(t *testing.T) {
			double(t, "cuda", fmt.Sprintf("DOUBLE_FAIL=cuInit=%d", tt.code))
			// A session of another test with the same library is not asked again.
			drv, err := load()
			if err != nil {
				t.Fatal(err)
			}
			_, err = newSession(drv)
			if !errors.Is(err, tt.is) || !errors.Is(err, tt.code) {
				t.Errorf("got %v, want %v", err, tt.is)
			}
			doubles.Words(t, err, "cuInit", tt.code.Name(), tt.word)
		})
	}
}

func TestNoDevice(t *testing.T) {
	double(t, "cuda")
	s := started(t)
	t.Setenv("DOUBLE_DEVICES", "0")
	_, err := s.devices(gpualloc.Env{})
	if !errors.Is(err, NoDevice) {
		t.Errorf("got %v, want NoDevice", err)
	}
	doubles.Words(t, err, "CUDA_VISIBLE_DEVICES")
}

func TestDevices(t *testing.T) {
	double(t, "cuda", "DOUBLE_DEVICES=3", "DOUBLE_PCI=0000:3b:00.0,0001:af:00.1")
	devices, err := Devices(gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 3 {
		t.Fatalf("got %d devices, want 3", len(devices))
	}
	d := devices[1]
	if d.Ordinal != 1 || d.Name != "CUDA Double 1" || d.PCI.String() != "0001:af:00.1" ||
		d.UUID != "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f" || d.TotalMem != 1<<30 ||
		d.Compute != [2]int{9, 0} || d.Integrated || !d.VMM || !d.VMMRDMA || !d.DMABuf.OK || d.DriverVersion != 12080 {
		t.Errorf("got %+v", d)
	}
}

// A MIG instance is known as nvidia-smi -L shows it, and by its GPU's address.
func TestMIGInstance(t *testing.T) {
	const gpu, mig = "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f", "MIG-10111213-1415-1617-1819-1a1b1c1d1ee0"
	for _, tt := range []struct {
		name, variant string
		knobs         []string
		want, not     string
	}{
		{"an instance", "cuda", []string{"DOUBLE_CUDA_MIG=1"}, mig, "GPU" + mig[3:]},
		{"a GPU", "cuda", []string{"DOUBLE_CUDA_MIG=0"}, gpu, "MIG" + gpu[3:]},
		{"an old driver", "cuda-old", []string{"DOUBLE_CUDA_MIG=1"}, gpu, mig},
		{"no answer of the GPU's own", "cuda", []string{"DOUBLE_FAIL=cuDeviceGetUuid=801"}, gpu, "MIG" + gpu[3:]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			double(t, tt.variant, tt.knobs...)
			devices, err := Devices(gpualloc.Env{})
			if err != nil {
				t.Fatal(err)
			}
			if d := devices[1]; d.UUID != tt.want || d.PCI.String() != "0000:d2:00.0" {
				t.Errorf("got %s at %v, want %s", d.UUID, d.PCI, tt.want)
			}
			aliases := map[string]bool{}
			for _, f := range discover(gpualloc.Env{}) {
				for _, a := range f.Aliases {
					aliases[a] = true
				}
			}
			for _, a := range []string{"cuda:" + tt.want, tt.want, "cuda:" + tt.want + "/vmm", "cuda:0000:d2:00.0"} {
				if !aliases[a] {
					t.Errorf("no %s among %v", a, aliases)
				}
			}
			if _, err := gpualloc.Open("cuda:"+tt.not, gpualloc.Env{}); !errors.Is(err, gpualloc.ErrUnknownSpec) {
				t.Errorf("%s: got %v, want ErrUnknownSpec", tt.not, err)
			}
			if !devices[1].DMABuf.OK { // as the old driver's
				return
			}
			a, err := gpualloc.Open("cuda:"+tt.want, gpualloc.Env{})
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Describe(); got.Spec != "cuda:1" {
				t.Errorf("opened %+v", got)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Every function that describe asks can fail; the error names it.
func TestDescribeFails(t *testing.T) {
	for _, function := range []string{
		"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetUuid_v2",
		"cuDeviceGetPCIBusId", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute",
	} {
		t.Run(function, func(t *testing.T) {
			double(t, "cuda")
			s := started(t)
			t.Setenv("DOUBLE_FAIL", function+"=46")
			_, err := s.devices(gpualloc.Env{})
			if !errors.Is(err, DeviceUnavailable) {
				t.Errorf("got %v, want DeviceUnavailable", err)
			}
			doubles.Words(t, err, strings.TrimSuffix(function, "_v2"))
		})
	}
}

func TestSupport(t *testing.T) {
	const open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
	const closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\n"
	tests := []struct {
		name    string
		variant string
		knobs   []string
		files   map[string]string // under sys, proc, dev
		words   []string
	}{
		{name: "too old a driver", variant: "cuda-old", knobs: []string{"DOUBLE_CUDA_VERSION=11040"}, words: []string{"11.4", exportFunction, "11.7"}},
		{name: "proprietary modules", variant: "cuda", files: map[string]string{"proc/driver/nvidia/version": closed}, words: []string{"proprietary", "open kernel modules"}},
		{name: "proprietary by its taint", variant: "cuda", files: map[string]string{"sys/module/nvidia/taint": "POE\n"}, words: []string{"taints"}},
		{name: "old GPU", variant: "cuda", knobs: []string{"DOUBLE_CUDA_COMPUTE=70"}, files: map[string]string{"proc/driver/nvidia/version": open}, words: []string{"7.0", "Turing"}},
		{name: "no dma-bufs in the kernel", variant: "cuda", files: map[string]string{"proc/filesystems": "nodev\tsysfs\n"}, words: []string{"CONFIG_DMA_SHARED_BUFFER"}},
		{name: "WSL", variant: "cuda", files: map[string]string{"dev/dxg": ""}, words: []string{"WSL"}},
		{
			name: "nothing to be seen", variant: "cuda",
			files: map[string]string{"proc/driver/nvidia/version": open, "sys/module/nvidia/taint": "OE\n", "proc/filesystems": "nodev\tdmabuf\n"},
			words: []string{"none of the causes", "confidential"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			double(t, tt.variant, append(tt.knobs, "DOUBLE_CUDA_DMABUF=0")...)
			root := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			drv, err := load()
			if err != nil {
				t.Fatal(err)
			}
			s, err := newSession(drv)
			if err != nil {
				t.Fatal(err)
			}
			devices, err := s.devices(gpualloc.Env{Sys: filepath.Join(root, "sys"), Proc: filepath.Join(root, "proc"), Dev: filepath.Join(root, "dev")})
			if err != nil {
				t.Fatal(err)
			}
			got := devices[0].DMABuf
			if got.OK {
				t.Fatal("said to be supported")
			}
			doubles.Words(t, errors.New(strings.Join(got.Why, "; ")+"; "+got.Remedy), tt.words...)
		})
	}
}
