// SPDX-License-Identifier: Apache-2.0

package testenv

import "testing"

// GPUPlace is memory of the software GPU that is beside rxe0: gpu0 of machine
// fabric.
type GPUPlace struct {
	GPU   SoftGPU
	Name  string // the place in the spec: "vram"
	Spec  string // what gpualloc.Open takes: "drm:0000:03:00.0/vram"
	Where string // where the driver has it while rxe0 has it registered
	// Importer is the kind of importer that rxe0 is. GPUPlaces sets it.
	Importer string
}

// placesImporter is the kind of importer that rxe0 is for GPUPlaces. Tests of other
// kinds say so afterwards (SetImporter).
const placesImporter = "pinned"

// EachGPU runs a test on each personality of the software GPU, as a subtest of
// its name, with the places that its memory can be asked to be in.
func EachGPU(t *testing.T, run func(t *testing.T, places []GPUPlace)) {
	t.Helper()
	VM(t)
	for _, p := range []string{"amdgpu", "xe", "i915"} {
		t.Run(p, func(t *testing.T) { run(t, GPUPlaces(t, p)) })
	}
}

// GPUPlaces loads the software GPU's driver with that personality, and makes rxe0 a
// pinned importer, whatever it was. (All get the personality: gpu0 is not the first to be
// probed any more where a test has unplugged it.)
func GPUPlaces(t testing.TB, personality string) []GPUPlace {
	t.Helper()
	if g := SoftGPUs(t, "personality="+personality)[0]; g.Personality != personality {
		t.Fatalf("%s is %s: the driver was loaded already", g.Name, g.Personality)
	}
	SetImporter(t, "rxe0", placesImporter)
	places := LoadedGPUPlaces(t)
	for i := range places {
		places[i].Importer = placesImporter
	}
	return places
}

// LoadedGPUPlaces are the places where the driver is loaded already, as for a
// child of the test.
func LoadedGPUPlaces(t testing.TB) []GPUPlace {
	t.Helper()
	g := loadedGPUs(t)[0]
	// Without PCI_P2PDMA in the kernel, and always with i915, a registration moves a
	// buffer out of VRAM, and refuses a buffer that must stay there.
	direct := AtLeast(t, "7.2") && g.Personality != "i915"
	names := []string{"vram", "system"}
	if direct && g.Personality == "xe" {
		names = append(names, "vram-only")
	}
	var all []GPUPlace
	for _, name := range names {
		p := GPUPlace{GPU: g, Name: name, Spec: "drm:" + g.PCI + "/" + name, Where: "system"}
		if direct && name != "system" {
			p.Where = "vram"
		}
		all = append(all, p)
	}
	return all
}
