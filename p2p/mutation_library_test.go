// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Subjects that have a fact.
func isNVIDIA(s *subject) bool { return s.exporter.ofNVIDIA() }
func isAMD(s *subject) bool    { return !s.exporter.ofNVIDIA() }

// all reports a subject for which each of these is so.
func all(fs ...func(*subject) bool) func(*subject) bool {
	return func(s *subject) bool {
		for _, f := range fs {
			if f != nil && !f(s) {
				return false
			}
		}
		return true
	}
}

func not(f func(*subject) bool) func(*subject) bool {
	return func(s *subject) bool { return !f(s) }
}

func is(e exporter) func(*subject) bool { return func(s *subject) bool { return s.exporter == e } }

// information is the file with the name that NVIDIA's driver gives a GPU.
func (b *bed) information() string { return "proc/driver/nvidia/gpus/" + b.s.gpu + "/information" }

// model gives the GPU another name.
func model(name string) func(*bed) {
	return func(b *bed) {
		text := ""
		for line := range strings.Lines(b.read(b.information())) {
			if strings.HasPrefix(line, "Model:") {
				line = "Model: \t\t " + name + "\n"
			}
			text += line
		}
		b.put(b.information(), text)
	}
}

// device gives the GPU another device id.
func device(id string) func(*bed) {
	return func(b *bed) { b.identify(b.s.gpu, "", id) }
}

// both makes two edits, of one fact that stands in two files.
func both(edits ...func(*bed)) func(*bed) {
	return func(b *bed) {
		for _, edit := range edits {
			edit(b)
		}
	}
}

// put writes a file of the function of the GPU.
func ofGPU(name, text string) func(*bed) {
	return func(b *bed) { b.put(b.dir(b.s.gpu)+"/"+name, text) }
}

// The model's name is not one that a table has, and the id alone decides.
func byID(s *subject) bool {
	return s.name == "small-hgx" || s.name == "wrong-socket" || s.name == "grace"
}

func libraryMutations() []mutation {
	const (
		names   = "open-gpu-kernel-modules g_nv_name_released.h: the driver names a GPU by device and subsystem id"
		cuda    = "NVIDIA/gdrcopy#211: CUDA gives no GeForce memory to other devices"
		visible = "openucx/ucx wiki, ROCm: the BAR has to show all VRAM; amdgpu_device.c amdgpu_device_is_peer_accessible()"
		unread  = "what decides could not be read"
	)
	return []mutation{
		{"the model is a GeForce", isNVIDIA, model("NVIDIA GeForce RTX 5090"), breaks(chain.Refused, chain.Library), cuda},
		{"the model is a GeForce of another age", isNVIDIA, model("GeForce RTX 2080 Ti"), breaks(chain.Refused, chain.Library), cuda},
		{"the model is a TITAN", isNVIDIA, model("NVIDIA TITAN RTX"), goes(chain.Library), "Mellanox/nv_peer_memory#88: no report of one that works"},
		{"the model is GB10", isNVIDIA, model("NVIDIA GB10"), breaks(chain.Refused, chain.Library), "DGX Spark Porting Guide, CUDA, GPUDirect RDMA"},
		{"the model is Thor", isNVIDIA, model("NVIDIA Thor"), breaks(chain.Refused, chain.Library), "CUDA GPUDirect RDMA guide, Porting to Tegra"},
		{"the model is a mining card", isNVIDIA, model("NVIDIA CMP 170HX"), goes(chain.Library), "NVIDIA/gdrcopy README.md names data-centre and professional GPUs only"},
		{"the model is a vGPU type of the Q series", isNVIDIA, model("NVIDIA A40-4Q"), goes(chain.Library), "NVIDIA AI Enterprise, vGPU, GPUDirect RDMA and GPUDirect Storage"},
		{"the model is a vGPU type of the C series, and the processor names no hypervisor", isNVIDIA, model("NVIDIA H100-20C"), goes(chain.Library, chain.Fabric),
			"a vGPU is in a guest, whose hypervisor hides itself: " + names},
		{"neither the model nor the id is in a table", isNVIDIA, both(model("NVIDIA Z999"), device("0xfffe")), goes(chain.Library, chain.Attach, chain.Fabric), names},
		{"the model cannot be read, and the id is in no table", isNVIDIA, both(func(b *bed) { b.deny(b.information()) }, device("0xfffe")), unsure(chain.Library, chain.Attach, chain.Fabric), names},
		{"the id is in no table, and the model's name says nothing", byID, device("0xfffe"), goes(chain.Library, chain.Attach, chain.Fabric), names},
		{"the id is in no table", all(isNVIDIA, not(byID)), device("0xfffe"), changesNothing, names},
		{"the id is a GeForce's, and the name a data-centre card's", all(isNVIDIA, not(byID)), device("0x2b85"), goes(chain.Library), "the name and the id contradict each other: " + names},
		{"the model cannot be read", isNVIDIA, func(b *bed) { b.deny(b.information()) }, changesNothing, "the id is in the table, and on a machine that is no guest a vGPU cannot have it: " + names},
		{"the driver has no directory for the GPU", isNVIDIA, func(b *bed) { b.drop("proc/driver/nvidia/gpus/" + b.s.gpu) }, changesNothing, "the id is in the table: " + names},
		{"the model cannot be read, and the firmware does not say whether the machine is a guest", is(coherent), both(dmi("Someone", "A machine"), func(b *bed) { b.deny(b.information()) }), unsure(chain.Library, chain.Fabric), "a vGPU has the id of the GPU that it is a part of: " + names},
		{"the vendor is one that has no table", nil, ofGPU("vendor", "0x1ed5\n"), goes(chain.Library, chain.Attach, chain.Fabric), "pci.ids: Moore Threads"},

		{"the BAR shows a part of the VRAM", isAMD, ofGPU("mem_info_vis_vram_total", "268435456\n"), breaks(chain.Refused, chain.Library), visible},
		{"the size of the visible VRAM cannot be read", isAMD, func(b *bed) { b.deny(b.dir(b.s.gpu) + "/mem_info_vis_vram_total") }, unsure(chain.Library), visible},
		{"the size of the visible VRAM is no number", isAMD, ofGPU("mem_info_vis_vram_total", "all\n"), goes(chain.Library), unread},
		{"the size of the VRAM cannot be read", isAMD, func(b *bed) { b.deny(b.dir(b.s.gpu) + "/mem_info_vram_total") }, unsure(chain.Library), visible},
		{"the size of the VRAM is 0", isAMD, ofGPU("mem_info_vram_total", "0\n"), goes(chain.Library), visible},
		{"amdgpu has no files of its memory", isAMD, func(b *bed) {
			b.drop(b.dir(b.s.gpu) + "/mem_info_vram_total")
			b.drop(b.dir(b.s.gpu) + "/mem_info_vis_vram_total")
		}, goes(chain.Library), visible},
		{"the id is an APU's", isAMD, device("0x1586"), goes(chain.Library), "amdgpu_ttm.c (apu_prefer_gtt): the memory is the machine's"},
		{"the id of the GPU is in no table of AMD's", isAMD, device("0xfffe"), goes(chain.Library), "pci.ids: a device that is not listed may be an APU"},
	}
}
