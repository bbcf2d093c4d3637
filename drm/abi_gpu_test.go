// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/internal/abicheck"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// gpuABI is what the GPU drivers' own headers describe.
var gpuABI = []struct {
	driver  string
	module  string // whose BTF has the types
	since   string // testbed series whose kernels have the driver
	header  string
	libdrm  bool // Debian 12's libdrm has the header, as new as this
	structs []abicheck.Struct
	numbers []abicheck.Number
}{
	{
		driver: "i915", module: "i915", since: "6.1", header: "i915_drm.h", libdrm: true,
		structs: []abicheck.Struct{
			{C: "drm_i915_gem_create", Go: abiI915Create{}, Fields: []string{"size", "handle", "pad"}},
			{C: "drm_i915_gem_create_ext", Go: abiI915CreateExt{}, Fields: []string{"size", "handle", "flags", "extensions"}},
			{C: "i915_user_extension", Go: abiI915Extension{}, Fields: []string{"next_extension", "name", "flags", "rsvd"}},
			{C: "drm_i915_gem_create_ext_memory_regions", Go: abiI915CreateRegions{}, Fields: []string{"base", "pad", "num_regions", "regions"}},
			{C: "drm_i915_gem_memory_class_instance", Go: abiI915Region{}, Fields: []string{"memory_class", "memory_instance"}},
			{C: "drm_i915_gem_mmap_offset", Go: abiI915MmapOffset{}, Fields: []string{"handle", "pad", "offset", "flags", "extensions"}},
			{C: "drm_i915_query", Go: abiI915Query{}, Fields: []string{"num_items", "flags", "items_ptr"}},
			{C: "drm_i915_query_item", Go: abiI915QueryItem{}, Fields: []string{"query_id", "length", "flags", "data_ptr"}},
			{C: "drm_i915_memory_region_info", Go: abiI915RegionInfo{}, Fields: []string{"region", "rsvd0", "probed_size", "unallocated_size", "probed_cpu_visible_size", "unallocated_cpu_visible_size", ""}},
			{C: "drm_i915_query_memory_regions", Go: abiI915RegionsHead{}, Fields: []string{"num_regions", "rsvd"}},
		},
		numbers: []abicheck.Number{
			{C: "DRM_IOCTL_I915_GEM_CREATE", Go: uint64(reqI915Create)},
			{C: "DRM_IOCTL_I915_GEM_CREATE_EXT", Go: uint64(reqI915CreateExt)},
			{C: "DRM_IOCTL_I915_GEM_MMAP_OFFSET", Go: uint64(reqI915MmapOffset)},
			{C: "DRM_IOCTL_I915_QUERY", Go: uint64(reqI915Query)},
			{C: "I915_MEMORY_CLASS_SYSTEM", Go: i915ClassSystem},
			{C: "I915_MEMORY_CLASS_DEVICE", Go: i915ClassDevice},
			{C: "I915_GEM_CREATE_EXT_MEMORY_REGIONS", Go: i915ExtMemoryRegions},
			{C: "I915_GEM_CREATE_EXT_FLAG_NEEDS_CPU_ACCESS", Go: uint64(I915NeedsCPUAccess)},
			{C: "DRM_I915_QUERY_MEMORY_REGIONS", Go: i915QueryRegions},
			{C: "I915_MMAP_OFFSET_GTT", Go: i915MmapGTT},
			{C: "I915_MMAP_OFFSET_WC", Go: i915MmapWC},
			{C: "I915_MMAP_OFFSET_FIXED", Go: i915MmapFixed},
		},
	},
	{
		driver: "xe", module: "xe", since: "6.12", header: "xe_drm.h",
		structs: []abicheck.Struct{
			{C: "drm_xe_device_query", Go: abiXeQuery{}, Fields: []string{"extensions", "query", "size", "data", "reserved"}},
			{C: "drm_xe_mem_region", Go: abiXeRegion{}, Fields: []string{"mem_class", "instance", "min_page_size", "total_size", "used", "cpu_visible_size", "cpu_visible_used", "reserved"}},
			{C: "drm_xe_query_mem_regions", Go: abiXeRegionsHead{}, Fields: []string{"num_mem_regions", "pad"}},
			{C: "drm_xe_query_config", Go: abiXeConfigHead{}, Fields: []string{"num_params", "pad"}},
			{C: "drm_xe_gem_create", Go: abiXeCreate{}, Fields: []string{"extensions", "size", "placement", "flags", "vm_id", "handle", "cpu_caching", "pad", "reserved"}},
			{C: "drm_xe_gem_mmap_offset", Go: abiXeMmapOffset{}, Fields: []string{"extensions", "handle", "flags", "offset", "reserved"}},
		},
		numbers: []abicheck.Number{
			{C: "DRM_IOCTL_XE_DEVICE_QUERY", Go: uint64(reqXeQuery)},
			{C: "DRM_IOCTL_XE_GEM_CREATE", Go: uint64(reqXeCreate)},
			{C: "DRM_IOCTL_XE_GEM_MMAP_OFFSET", Go: uint64(reqXeMmapOffset)},
			{C: "DRM_XE_MEM_REGION_CLASS_SYSMEM", Go: xeClassSystem},
			{C: "DRM_XE_MEM_REGION_CLASS_VRAM", Go: xeClassVRAM},
			{C: "DRM_XE_DEVICE_QUERY_MEM_REGIONS", Go: xeQueryRegions},
			{C: "DRM_XE_DEVICE_QUERY_CONFIG", Go: xeQueryConfig},
			{C: "DRM_XE_QUERY_CONFIG_REV_AND_DEVICE_ID", Go: xeConfigRevAndDeviceID},
			{C: "DRM_XE_QUERY_CONFIG_FLAGS", Go: xeConfigFlags},
			{C: "DRM_XE_QUERY_CONFIG_FLAG_HAS_VRAM", Go: xeFlagHasVRAM},
			{C: "DRM_XE_QUERY_CONFIG_MIN_ALIGNMENT", Go: xeConfigMinAlignment},
			{C: "DRM_XE_QUERY_CONFIG_VA_BITS", Go: xeConfigVABits},
			{C: "DRM_XE_GEM_CREATE_FLAG_DEFER_BACKING", Go: uint64(XeDeferBacking)},
			{C: "DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM", Go: uint64(XeNeedsVisibleVRAM)},
			{C: "DRM_XE_GEM_CPU_CACHING_WB", Go: uint64(XeWriteBack)},
			{C: "DRM_XE_GEM_CPU_CACHING_WC", Go: uint64(XeWriteCombined)},
		},
	},
	{
		driver: "amdgpu", module: "amdgpu", since: "6.1", header: "amdgpu_drm.h", libdrm: true,
		structs: []abicheck.Struct{
			{C: "drm_amdgpu_gem_create_in", Go: abiAmdgpuCreateIn{}, Fields: []string{"bo_size", "alignment", "domains", "domain_flags"}},
			{C: "drm_amdgpu_gem_create_out", Go: abiAmdgpuCreateOut{}, Fields: []string{"handle", "_pad"}},
			{C: "drm_amdgpu_gem_mmap_in", Go: abiAmdgpuMmapIn{}, Fields: []string{"handle", "_pad"}},
			{C: "drm_amdgpu_gem_mmap_out", Go: abiAmdgpuMmapOut{}, Fields: []string{"addr_ptr"}},
			{C: "drm_amdgpu_info", Go: abiAmdgpuInfo{}, Fields: []string{"return_pointer", "return_size", "query", ""}},
			{C: "drm_amdgpu_heap_info", Go: abiAmdgpuHeap{}, Fields: []string{"total_heap_size", "usable_heap_size", "heap_usage", "max_allocation"}},
			{C: "drm_amdgpu_memory_info", Go: abiAmdgpuMemory{}, Fields: []string{"vram", "cpu_accessible_vram", "gtt"}},
			{C: "drm_amdgpu_info_device", Prefix: true, Go: abiAmdgpuDevice{}, Fields: []string{
				"device_id", "chip_rev", "external_rev", "pci_rev", "family", "num_shader_engines", "num_shader_arrays_per_engine",
				"gpu_counter_freq", "max_engine_clock", "max_memory_clock", "cu_active_number", "cu_ao_mask", "cu_bitmap",
				"enabled_rb_pipes_mask", "num_rb_pipes", "num_hw_gfx_contexts", "", "ids_flags", "virtual_address_offset",
				"virtual_address_max", "virtual_address_alignment", "pte_fragment_size", "gart_page_size", "ce_ram_size", "vram_type", "vram_bit_width",
			}},
		},
		numbers: []abicheck.Number{
			{C: "DRM_IOCTL_AMDGPU_GEM_CREATE", Go: uint64(reqAmdgpuCreate)},
			{C: "DRM_IOCTL_AMDGPU_GEM_MMAP", Go: uint64(reqAmdgpuMmap)},
			{C: "DRM_IOCTL_AMDGPU_INFO", Go: uint64(reqAmdgpuInfo)},
			{C: "AMDGPU_INFO_DEV_INFO", Go: amdgpuInfoDevice},
			{C: "AMDGPU_INFO_MEMORY", Go: amdgpuInfoMemory},
			{C: "AMDGPU_IDS_FLAGS_FUSION", Go: amdgpuFusion},
			{C: "AMDGPU_GEM_DOMAIN_CPU", Go: uint64(AmdgpuCPU)},
			{C: "AMDGPU_GEM_DOMAIN_GTT", Go: uint64(AmdgpuGTT)},
			{C: "AMDGPU_GEM_DOMAIN_VRAM", Go: uint64(AmdgpuVRAM)},
			{C: "AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED", Go: uint64(AmdgpuCPUAccess)},
			{C: "AMDGPU_GEM_CREATE_NO_CPU_ACCESS", Go: uint64(AmdgpuNoCPUAccess)},
			{C: "AMDGPU_GEM_CREATE_CPU_GTT_USWC", Go: uint64(AmdgpuUSWC)},
			{C: "AMDGPU_GEM_CREATE_VRAM_CLEARED", Go: uint64(AmdgpuVRAMCleared)},
		},
	},
	{
		driver: "virtio_gpu", module: "virtio_gpu", since: "6.1", header: "virtgpu_drm.h",
		structs: []abicheck.Struct{
			{C: "drm_virtgpu_map", Go: abiVirtgpuMap{}, Fields: []string{"offset", "handle", "pad"}},
			{C: "drm_virtgpu_getparam", Go: abiVirtgpuGetparam{}, Fields: []string{"param", "value"}},
			// 7.2 has hints behind these, and takes a shorter structure as before.
			{C: "drm_virtgpu_resource_create_blob", Prefix: true, Go: abiVirtgpuBlob{}, Fields: []string{"blob_mem", "blob_flags", "bo_handle", "res_handle", "size", "pad", "cmd_size", "cmd", "blob_id"}},
			{C: "drm_virtgpu_get_caps", Go: abiVirtgpuCaps{}, Fields: []string{"cap_set_id", "cap_set_ver", "addr", "size", "pad"}},
		},
		numbers: []abicheck.Number{
			{C: "DRM_IOCTL_VIRTGPU_MAP", Go: uint64(reqVirtgpuMap)},
			{C: "DRM_IOCTL_VIRTGPU_GETPARAM", Go: uint64(reqVirtgpuGetparam)},
			{C: "DRM_IOCTL_VIRTGPU_GET_CAPS", Go: uint64(reqVirtgpuGetCaps)},
			{C: "VIRTGPU_PARAM_3D_FEATURES", Go: uint64(Virtgpu3D)},
			{C: "VIRTGPU_PARAM_RESOURCE_BLOB", Go: uint64(VirtgpuBlob)},
			{C: "VIRTGPU_PARAM_HOST_VISIBLE", Go: uint64(VirtgpuHostVisible)},
			{C: "VIRTGPU_PARAM_CROSS_DEVICE", Go: uint64(VirtgpuCrossDevice)},
			{C: "VIRTGPU_PARAM_SUPPORTED_CAPSET_IDs", Go: uint64(VirtgpuCapsets)},
			{C: "VIRTGPU_BLOB_MEM_GUEST", Go: uint64(VirtgpuGuest)},
			{C: "VIRTGPU_BLOB_MEM_HOST3D", Go: uint64(VirtgpuHost)},
			{C: "VIRTGPU_BLOB_MEM_HOST3D_GUEST", Go: uint64(VirtgpuHostGuest)},
			{C: "VIRTGPU_BLOB_FLAG_USE_MAPPABLE", Go: uint64(VirtgpuMappable)},
			{C: "VIRTGPU_BLOB_FLAG_USE_SHAREABLE", Go: uint64(VirtgpuShareable)},
			{C: "VIRTGPU_BLOB_FLAG_USE_CROSS_DEVICE", Go: uint64(VirtgpuCrossUse)},
		},
	},
}

// Golden request numbers, for machines without the headers.
func TestGPURequestNumbers(t *testing.T) {
	for name, c := range map[string][2]uint32{
		"DRM_IOCTL_I915_GEM_CREATE":              {reqI915Create, 0xc010645b},
		"DRM_IOCTL_I915_GEM_MMAP_OFFSET":         {reqI915MmapOffset, 0xc0206464},
		"DRM_IOCTL_I915_QUERY":                   {reqI915Query, 0xc0106479},
		"DRM_IOCTL_I915_GEM_CREATE_EXT":          {reqI915CreateExt, 0xc018647c},
		"DRM_IOCTL_XE_DEVICE_QUERY":              {reqXeQuery, 0xc0286440},
		"DRM_IOCTL_XE_GEM_CREATE":                {reqXeCreate, 0xc0386441},
		"DRM_IOCTL_XE_GEM_MMAP_OFFSET":           {reqXeMmapOffset, 0xc0286442},
		"DRM_IOCTL_AMDGPU_GEM_CREATE":            {reqAmdgpuCreate, 0xc0206440},
		"DRM_IOCTL_AMDGPU_GEM_MMAP":              {reqAmdgpuMmap, 0xc0086441},
		"DRM_IOCTL_AMDGPU_INFO":                  {reqAmdgpuInfo, 0x40206445},
		"DRM_IOCTL_VIRTGPU_MAP":                  {reqVirtgpuMap, 0xc0106441},
		"DRM_IOCTL_VIRTGPU_GETPARAM":             {reqVirtgpuGetparam, 0xc0106443},
		"DRM_IOCTL_VIRTGPU_GET_CAPS":             {reqVirtgpuGetCaps, 0xc0186449},
		"DRM_IOCTL_VIRTGPU_RESOURCE_CREATE_BLOB": {reqVirtgpuBlob, 0xc030644a},
	} {
		if c[0] != c[1] {
			t.Errorf("%s = %#x, want %#x", name, c[0], c[1])
		}
	}
}

// Against libdrm's headers where they are new enough, and against those of
// every kernel that the testbed has fetched.
func TestGPUHeaders(t *testing.T) {
	// A kernel's headers before `make headers_install` has had them: libc has
	// no __user.
	var kernels []string
	for _, home := range []string{"kernels/*/headers", "roots/*"} {
		dirs, err := filepath.Glob("../build/" + home + "/usr/src/linux-headers-*-common/include/uapi/drm")
		if err != nil {
			t.Fatal(err)
		}
		kernels = append(kernels, dirs...)
	}
	for _, abi := range gpuABI {
		t.Run(abi.driver, func(t *testing.T) {
			compared := false
			if abi.libdrm {
				compared = true
				libdrm := abicheck.Headers{
					Files: []string{abi.header}, Flags: []string{"-I/usr/include/libdrm", "-I/usr/include/drm"}, Package: "libdrm-dev",
				}
				libdrm.Compare(t, abi.structs, abi.numbers)
			}
			for _, dir := range kernels {
				if _, err := os.Stat(filepath.Join(dir, abi.header)); err != nil {
					continue // older than the driver
				}
				compared = true
				kernel := abicheck.Headers{
					Files: []string{abi.header}, Package: "linux-headers, by testbed fetch",
					// Newer ones include what libc's kernel headers lack.
					Flags: []string{"-D__user=", "-I" + dir, "-idirafter", filepath.Dir(dir)},
				}
				kernel.Compare(t, abi.structs, abi.numbers)
			}
			if !compared {
				t.Skip("no header to compare with: Debian's libdrm has none that is new enough, and the testbed has fetched no kernel")
			}
		})
	}
}

// moduleBTF reads the types of a driver of this kernel from its file: loading
// all of amdgpu takes an emulated machine more than a minute.
func moduleBTF(name string) (*btf.Spec, error) {
	out, err := exec.Command("modinfo", "-n", name).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("modinfo %s: %w: %s", name, err, out)
	}
	file := strings.TrimSpace(string(out))
	object, err := os.ReadFile(file)
	if strings.HasSuffix(file, ".xz") {
		object, err = exec.Command("xz", "-dc", file).Output()
	}
	if err != nil {
		return nil, err
	}
	module, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	section := module.Section(".BTF")
	if section == nil {
		return nil, fmt.Errorf("%s has no BTF", file)
	}
	types, err := section.Data()
	if err != nil {
		return nil, err
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	return btf.LoadSplitSpecFromReader(bytes.NewReader(types), kernel)
}

// Against the drivers themselves.
func TestVMLayoutOfGPUDrivers(t *testing.T) {
	testenv.VM(t)
	for _, abi := range gpuABI {
		t.Run(abi.driver, func(t *testing.T) {
			var spec *btf.Spec
			testenv.Need(t, "driver "+abi.driver, abi.since, func() (err error) {
				spec, err = moduleBTF(abi.module)
				return err
			})
			if err := abicheck.BTF(spec, abi.structs...); err != nil {
				t.Error(err)
			}
		})
	}
}
