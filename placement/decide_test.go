// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	ramLow  = 0x1_0000_0000
	gpuBAR  = 0x38_0000_0000
	gpu2BAR = 0x3a_0000_0000
	nicBAR  = 0xe000_0000
	ghMem   = 0x40_0000_0000
	iova    = 0xffff_8000_0000
	nowhere = 0x70_0000_0000
)

// testMachine has two GPUs, a NIC with a BAR of its own, RAM on both sides of
// the hole below 4 GiB, and coherent GPU memory.
func testMachine() *Machine {
	return &Machine{
		BARs: []BAR{
			{Device: "0000:03:00.0", Index: 1, GPU: true, Range: Range{gpuBAR, 1 << 33}},
			{Device: "0000:04:00.0", Index: 0, GPU: true, Range: Range{gpu2BAR, 1 << 33}},
			{Device: "0000:05:00.0", Index: 0, Range: Range{nicBAR, 32 << 20}},
		},
		RAM:      []Range{{0x10_0000, 0xbff0_0000}, {ramLow, 64 << 30}},
		Coherent: []Coherent{{Name: "NVIDIA GH200 memory", Range: Range{ghMem, 96 << 30}}},
	}
}

// many is a view of which only the counts are known.
func many(counts map[Kind]Range) View {
	v := View{Dropped: true, Ranges: []Range{{ramLow, 0x1000}}}
	for k, r := range counts {
		v.Counts[k] = Count{Bytes: r.Size, Low: r.Start, High: r.Start + 2*r.Size}
		v.Bytes += r.Size
	}
	return v
}

// rows are the decision table's. CUDA, mlx5 and coherent platforms exist only
// here: no virtual machine has them.
var rows = []struct {
	name   string
	in     Inputs
	memory Memory
	proof  Proof
	route  Route
	likely Memory
	direct Answer
	gpu    bool
	words  []string // in String()
}{
	{name: "1: refused",
		in:     Inputs{Errno: 16, Resources: ViewOf(Range{gpuBAR, 0x1000})},
		memory: NotMapped, direct: No, words: []string{"not mapped", "refused"}},
	{name: "1: attached only", in: Inputs{}, memory: NotMapped, direct: No, words: []string{"not mapped now"}},
	{name: "2: amdgpu VRAM by dma_map_resource, no IOMMU",
		in: Inputs{Mapped: true, Translation: Untranslated, Exporter: "amdgpu",
			DMA: ViewOf(Range{gpuBAR + 0x10000, 0x20000}), Resources: ViewOf(Range{gpuBAR + 0x10000, 0x20000})},
		memory: PeerToPeer, proof: PhysicalAddress, gpu: true, words: []string{"0000:03:00.0 BAR 1", "physical address"}},
	{name: "2: NVIDIA BAR1 under an IOMMU, peer2peer false (CUDA, static exporter)",
		in: Inputs{Mapped: true, Translation: Translated, Exporter: "nvidia", PeerAllowed: No, MapType: MapTypeThruHostBridge,
			DMA: ViewOf(Range{iova, 0x20000}), Resources: ViewOf(Range{gpuBAR, 0x20000})},
		memory: PeerToPeer, proof: PhysicalAddress, route: ThroughRootComplex, direct: Yes, gpu: true},
	{name: "2: vfio physical vector, below a switch",
		in: Inputs{Mapped: true, Translation: Untranslated, MapType: MapTypeBusAddr,
			DMA: ViewOf(Range{gpuBAR, 0x4000}), Resources: ViewOf(Range{gpuBAR, 0x4000})},
		memory: PeerToPeer, proof: BusAddress, route: BelowSwitch, direct: Yes, gpu: true},
	{name: "2: physical addresses of two GPUs",
		in: Inputs{Mapped: true, Translation: Translated, DMA: ViewOf(Range{iova, 0x2000}),
			Resources: ViewOf(Range{gpuBAR, 0x1000}, Range{gpu2BAR, 0x1000})},
		memory: PeerToPeer, proof: PhysicalAddress, gpu: true, words: []string{"0000:03:00.0 BAR 1, 0000:04:00.0 BAR 0"}},
	{name: "2: thousands of VRAM segments, counted",
		in: Inputs{Mapped: true, Translation: Translated, DMA: many(map[Kind]Range{KindOther: {iova, 1 << 20}}),
			Resources: many(map[Kind]Range{KindBAR: {gpuBAR, 1 << 20}})},
		memory: PeerToPeer, proof: PhysicalAddress, gpu: true, words: []string{"0000:03:00.0 BAR 1"}},
	{name: "2: physical addresses account for half",
		in: Inputs{Mapped: true, Translation: Translated, DMA: ViewOf(Range{iova, 0x4000}),
			Resources: ViewOf(Range{gpuBAR, 0x2000})},
		memory: Unknown, words: []string{"8192 bytes", "16384"}},
	{name: "2: dma_map_resource of RAM",
		in:     Inputs{Mapped: true, DMA: ViewOf(Range{iova, 0x1000}), Resources: ViewOf(Range{ramLow, 0x1000})},
		memory: SystemMemory, proof: PhysicalAddress, direct: No},
	{name: "3: bus address flag",
		in:     Inputs{Mapped: true, BusFlag: true, Translation: Translated, DMA: ViewOf(Range{gpuBAR, 0x1000})},
		memory: PeerToPeer, proof: BusAddress, route: BelowSwitch, direct: Yes, gpu: true},
	{name: "3: map type without a flag (7.2 provider path)",
		in:     Inputs{Mapped: true, MapType: MapTypeBusAddr, DMA: ViewOf(Range{gpuBAR, 0x1000})},
		memory: PeerToPeer, proof: BusAddress, route: BelowSwitch, direct: Yes, gpu: true},
	{name: "3: bus addresses beside RAM, with pages",
		in: Inputs{Mapped: true, BusFlag: true, Translation: Translated, DMA: ViewOf(Range{iova, 0x2000}, Range{gpuBAR, 0x1000}),
			Pages: ViewOf(Range{ramLow, 0x2000}, Range{gpuBAR, 0x1000})},
		memory: Mixed, proof: StructPage, route: BelowSwitch, direct: No, gpu: true, words: []string{"8192 bytes in RAM", "4096 bytes in 0000:03:00.0 BAR 1"}},
	{name: "3: bus addresses beside RAM, no IOMMU and no pages",
		in:     Inputs{Mapped: true, BusFlag: true, Translation: Untranslated, DMA: ViewOf(Range{ramLow, 0x2000}, Range{gpuBAR, 0x1000})},
		memory: Mixed, proof: DMAAddress, route: BelowSwitch, direct: No, gpu: true},
	{name: "3: bus addresses beside IOVAs",
		in:     Inputs{Mapped: true, BusFlag: true, Translation: Translated, DMA: ViewOf(Range{iova, 0x2000}, Range{gpuBAR, 0x1000})},
		memory: Unknown, words: []string{"4096 of 12288 bytes", "IOVAs"}},
	{name: "3: bus addresses beside RAM that bounces",
		in: Inputs{Mapped: true, BusFlag: true, Translation: Untranslated, Displaced: 0x2000, DMA: ViewOf(Range{ramLow + 0x10000, 0x2000}, Range{gpuBAR, 0x1000}),
			Pages: ViewOf(Range{ramLow, 0x2000}, Range{gpuBAR, 0x1000})},
		memory: Bounced, proof: DMAAddress, direct: No, words: []string{"8192 of 12288 bytes"}},
	{name: "2: physical addresses beside RAM that bounces",
		in: Inputs{Mapped: true, Translation: Untranslated, Displaced: 0x2000, DMA: ViewOf(Range{ramLow + 0x10000, 0x2000}, Range{gpuBAR, 0x1000}),
			Resources: ViewOf(Range{gpuBAR, 0x1000}), Pages: ViewOf(Range{ramLow, 0x2000})},
		memory: Bounced, proof: DMAAddress, direct: No, words: []string{"8192 of 12288 bytes"}},
	{name: "3: bus addresses chosen, and none seen",
		in:     Inputs{Mapped: true, MapType: MapTypeBusAddr},
		memory: Unknown, words: []string{"were not seen"}},
	{name: "3: bus addresses that lie in no BAR",
		in:     Inputs{Mapped: true, BusFlag: true, Translation: Translated, DMA: ViewOf(Range{nowhere, 0x2000})},
		memory: Unknown, words: []string{"none of those"}},
	{name: "3: an IOVA with the number of a BAR, for RAM",
		in: Inputs{Mapped: true, BusFlag: true, Translation: Translated, DMA: ViewOf(Range{nicBAR, 0x1000}, Range{gpuBAR, 0x1000}),
			Pages: ViewOf(Range{ramLow, 0x1000}, Range{gpuBAR, 0x1000})},
		memory: Mixed, proof: StructPage, route: BelowSwitch, direct: No, gpu: true},
	{name: "4: untranslated BAR address",
		in:     Inputs{Mapped: true, Translation: Untranslated, DMA: ViewOf(Range{gpu2BAR, 0x1000})},
		memory: PeerToPeer, proof: DMAAddress, gpu: true, words: []string{"0000:04:00.0 BAR 0"}},
	{name: "5: untranslated RAM address",
		in:     Inputs{Mapped: true, Translation: Untranslated, DMA: ViewOf(Range{ramLow, 0x1000}, Range{0x20_0000, 0x1000})},
		memory: SystemMemory, proof: DMAAddress, direct: No},
	{name: "5: many ranges of RAM on both sides of the hole",
		in: Inputs{Mapped: true, Translation: Untranslated,
			DMA: many(map[Kind]Range{KindRAM: {0x10_0000, 64 << 30}})},
		memory: SystemMemory, proof: DMAAddress, direct: No},
	{name: "6: pages in RAM under an IOMMU",
		in: Inputs{Mapped: true, Translation: Translated, PeerAllowed: Yes,
			DMA: ViewOf(Range{iova, 0x2000}), Pages: ViewOf(Range{ramLow, 0x1000}, Range{ramLow + 0x8000, 0x1000})},
		memory: SystemMemory, proof: StructPage, direct: No},
	{name: "7: ZONE_DEVICE pages of a BAR",
		in:     Inputs{Mapped: true, Translation: Translated, DMA: ViewOf(Range{iova, 0x1000}), Pages: ViewOf(Range{nicBAR, 0x1000})},
		memory: PeerToPeer, proof: StructPage, words: []string{"0000:05:00.0 BAR 0"}},
	{name: "8: coherent GPU memory (GH200)",
		in:     Inputs{Mapped: true, Translation: Translated, DMA: ViewOf(Range{iova, 0x1000}), Pages: ViewOf(Range{ghMem, 0x1000})},
		memory: CoherentGPUMemory, proof: StructPage, words: []string{"GH200"}},
	{name: "9: only an IOVA, peer2peer true",
		in:     Inputs{Mapped: true, Translation: Translated, PeerAllowed: Yes, DMA: ViewOf(Range{iova, 0x1000})},
		memory: Unknown, likely: PeerToPeer, words: []string{"IOMMU translates"}},
	{name: "9: only an IOVA that looks like a BAR",
		in:     Inputs{Mapped: true, Translation: Translated, DMA: ViewOf(Range{gpuBAR, 0x1000})},
		memory: Unknown},
	{name: "9: only an IOVA, amdgpu without peer2peer",
		in:     Inputs{Mapped: true, Translation: Translated, PeerAllowed: No, Exporter: "amdgpu", DMA: ViewOf(Range{iova, 0x1000})},
		memory: Unknown, likely: SystemMemory, words: []string{"amdgpu"}},
	{name: "9: only an IOVA, NVIDIA without peer2peer (proves nothing)",
		in:     Inputs{Mapped: true, Translation: Translated, PeerAllowed: No, Exporter: "nvidia", DMA: ViewOf(Range{iova, 0x1000})},
		memory: Unknown},
	{name: "9: translation not known",
		in:     Inputs{Mapped: true, DMA: ViewOf(Range{gpuBAR, 0x1000})},
		memory: Unknown, words: []string{"whether an IOMMU"}},
	{name: "9: pages whose addresses cannot be told",
		in:     Inputs{Mapped: true, Translation: Translated, PagesOpaque: 0x1000, DMA: ViewOf(Range{iova, 0x1000})},
		memory: Unknown, likely: SystemMemory},
	{name: "10: the importer's own BAR is not a GPU",
		in:     Inputs{Mapped: true, Translation: Untranslated, Importer: "0000:05:00.0", DMA: ViewOf(Range{nicBAR, 0x1000})},
		memory: PeerToPeer, proof: DMAAddress, gpu: false, words: []string{"0000:05:00.0"}},
	{name: "11: mixed, by DMA addresses",
		in:     Inputs{Mapped: true, Translation: Untranslated, DMA: ViewOf(Range{gpuBAR, 0x3000}, Range{ramLow, 0x1000})},
		memory: Mixed, proof: DMAAddress, direct: No, gpu: true, words: []string{"12288 bytes in 0000:03:00.0 BAR 1", "4096 bytes in RAM"}},
	{name: "11: mixed under an IOMMU, resources and pages",
		in: Inputs{Mapped: true, Translation: Translated, DMA: ViewOf(Range{iova, 0x4000}),
			Resources: ViewOf(Range{gpuBAR, 0x3000}), Pages: ViewOf(Range{ramLow, 0x1000})},
		memory: Mixed, proof: PhysicalAddress, direct: No, gpu: true},
	{name: "11: mixed, counted",
		in: Inputs{Mapped: true, Translation: Untranslated,
			DMA: many(map[Kind]Range{KindRAM: {ramLow, 1 << 20}, KindBAR: {gpuBAR, 1 << 16}})},
		memory: Mixed, proof: DMAAddress, direct: No, gpu: true, words: []string{"65536 bytes", "1048576 bytes"}},
	{name: "12: swiotlb flag",
		in:     Inputs{Mapped: true, SwiotlbFlag: true, Translation: Untranslated, DMA: ViewOf(Range{ramLow, 0x1000}), Pages: ViewOf(Range{ramLow + 0x9000, 0x1000})},
		memory: Bounced, proof: StructPage, direct: No},
	{name: "12: displaced without an IOMMU",
		in: Inputs{Mapped: true, Displaced: 0x1000, Translation: Untranslated,
			DMA: ViewOf(Range{ramLow, 0x1000}), Pages: ViewOf(Range{ramLow + 0x9000, 0x1000})},
		memory: Bounced, proof: DMAAddress, direct: No},
	{name: "12: displaced by the bit of memory encryption",
		in: Inputs{Mapped: true, Displaced: 0x1000, Translation: Untranslated,
			DMA: ViewOf(Range{1<<47 | ramLow, 0x1000}), Pages: ViewOf(Range{ramLow, 0x1000})},
		memory: SystemMemory, proof: StructPage, direct: No},
	{name: "1: physical addresses for what has pages, too",
		in: Inputs{Mapped: true, Translation: Translated,
			DMA: ViewOf(Range{iova, 0x1000}), Resources: ViewOf(Range{gpuBAR, 0x1000}), Pages: ViewOf(Range{ramLow, 0x1000})},
		memory: Unknown, words: []string{"all 4096 bytes", "for 4096 of them"}},
	{name: "12: displaced under an IOMMU is an IOVA",
		in: Inputs{Mapped: true, Displaced: 0x1000, Translation: Translated,
			DMA: ViewOf(Range{iova, 0x1000}), Pages: ViewOf(Range{ramLow, 0x1000})},
		memory: SystemMemory, proof: StructPage, direct: No},
	{name: "12: in no table",
		in:     Inputs{Mapped: true, Translation: Untranslated, DMA: ViewOf(Range{nowhere, 0x1000})},
		memory: Unknown, words: []string{"0x7000000000"}},
	{name: "12: half in a BAR, half beyond it",
		in:     Inputs{Mapped: true, Translation: Untranslated, DMA: ViewOf(Range{gpu2BAR + 1<<33 - 0x1000, 0x2000})},
		memory: Unknown, words: []string{"4096 bytes"}},
	{name: "stale", in: Inputs{Mapped: true, Moved: true, Translation: Untranslated, DMA: ViewOf(Range{gpuBAR, 0x1000})},
		memory: Stale, words: []string{"moved"}},
	{name: "a lost event beats everything but a refusal",
		in:     Inputs{Mapped: true, Moved: true, Lost: "2 move events", Translation: Untranslated, DMA: ViewOf(Range{gpuBAR, 0x1000})},
		memory: Unknown, words: []string{"2 move events"}},
	{name: "pre-existing, unseen", in: Inputs{Preexisting: true}, memory: Unknown, words: []string{"before tracing"}},
	{name: "the walk ended early in RAM",
		in: Inputs{Mapped: true, Translation: Untranslated,
			DMA: View{Ranges: []Range{{ramLow, 0x1000}}, Bytes: 0x1000, Unread: true}},
		memory: Unknown, likely: SystemMemory, words: []string{"first 4096 bytes"}},
	{name: "the walk ended early, both kinds seen",
		in: Inputs{Mapped: true, Translation: Untranslated,
			DMA: View{Ranges: []Range{{ramLow, 0x1000}, {gpuBAR, 0x1000}}, Bytes: 0x2000, Unread: true}},
		memory: Mixed, proof: DMAAddress, direct: No, gpu: true},
	{name: "amdgpu VRAM, told of a common switch",
		in: Inputs{Mapped: true, Translation: Untranslated, Reach: MapTypeBusAddr,
			DMA: ViewOf(Range{gpuBAR, 0x1000}), Resources: ViewOf(Range{gpuBAR, 0x1000})},
		memory: PeerToPeer, proof: PhysicalAddress, route: BelowSwitch, direct: Yes, gpu: true},
	{name: "amdgpu VRAM, told of the host bridge",
		in: Inputs{Mapped: true, Translation: Untranslated, Reach: MapTypeThruHostBridge,
			DMA: ViewOf(Range{gpuBAR, 0x1000}), Resources: ViewOf(Range{gpuBAR, 0x1000})},
		memory: PeerToPeer, proof: PhysicalAddress, route: ThroughRootComplex, direct: Yes, gpu: true},
	{name: "a common switch, and an IOMMU that sends IOVAs past it",
		in: Inputs{Mapped: true, Translation: Translated, Reach: MapTypeBusAddr,
			DMA: ViewOf(Range{iova, 0x1000}), Resources: ViewOf(Range{gpuBAR, 0x1000})},
		memory: PeerToPeer, proof: PhysicalAddress, gpu: true},
	{name: "a common switch, and an IOMMU that nobody knows of",
		in: Inputs{Mapped: true, Reach: MapTypeBusAddr,
			DMA: ViewOf(Range{iova, 0x1000}), Resources: ViewOf(Range{gpuBAR, 0x1000})},
		memory: PeerToPeer, proof: PhysicalAddress, gpu: true},
	{name: "mapped, nothing seen", in: Inputs{Mapped: true, Translation: Untranslated}, memory: Unknown},
	{name: "pages for a part, IOVA for the rest",
		in:     Inputs{Mapped: true, Translation: Translated, DMA: ViewOf(Range{iova, 0x2000}), Pages: ViewOf(Range{ramLow, 0x1000})},
		memory: Unknown, words: []string{"4096 of 8192"}},
}

func TestDecide(t *testing.T) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			p := Decide(row.in, testMachine())
			if p.Memory != row.memory || p.Proof != row.proof || p.Route != row.route || p.Likely != row.likely {
				t.Errorf("memory %v, proof %v, route %v, likely %v; want %v, %v, %v, %v\n%v",
					p.Memory, p.Proof, p.Route, p.Likely, row.memory, row.proof, row.route, row.likely, p)
			}
			if p.Direct() != row.direct {
				t.Errorf("direct %v, want %v", p.Direct(), row.direct)
			}
			if p.GPU() != row.gpu {
				t.Errorf("GPU %v, want %v", p.GPU(), row.gpu)
			}
			for _, w := range row.words {
				if !strings.Contains(p.String(), w) {
					t.Errorf("%q lacks %q", p, w)
				}
			}
			if p.Memory == Unknown && p.Reason == "" {
				t.Error("unknown without a reason")
			}
		})
	}
}

// peer2peer alone must never decide.
func TestPeerAllowedProvesNothing(t *testing.T) {
	for _, row := range rows {
		for _, a := range []Answer{AnswerUnknown, Yes, No} {
			in := row.in
			in.PeerAllowed = a
			if p := Decide(in, testMachine()); p.Memory != row.memory {
				t.Errorf("%s: peer2peer %v turns %v into %v", row.name, a, row.memory, p.Memory)
			}
		}
	}
}

// Any loss makes any mapping Unknown.
func TestLossIsUnknown(t *testing.T) {
	for _, row := range rows {
		in := row.in
		in.Lost = "1 event"
		if p := Decide(in, testMachine()); in.Errno == 0 && p.Memory != Unknown {
			t.Errorf("%s: %v in spite of a lost event", row.name, p)
		}
	}
}

// Without root /proc/iomem has no addresses: RAM is then never claimed from
// addresses, and a BAR still is.
func TestWithoutRAM(t *testing.T) {
	m := testMachine()
	m.RAM = nil
	ram := Inputs{Mapped: true, Translation: Untranslated, DMA: ViewOf(Range{ramLow, 0x1000})}
	if p := Decide(ram, m); p.Memory != Unknown || !strings.Contains(p.Reason, "/proc/iomem") {
		t.Errorf("RAM without a RAM table: %v", p)
	}
	bar := Inputs{Mapped: true, Translation: Untranslated, DMA: ViewOf(Range{gpuBAR, 0x1000})}
	if p := Decide(bar, m); p.Memory != PeerToPeer {
		t.Errorf("a BAR without a RAM table: %v", p)
	}
}

func TestWrappingRange(t *testing.T) {
	in := Inputs{Mapped: true, Translation: Untranslated, DMA: ViewOf(Range{^uint64(0) - 0xfff, 0x4000})}
	if p := Decide(in, testMachine()); p.Memory != Unknown {
		t.Errorf("%v", p)
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(uint64(ramLow), uint64(0x1000), uint64(gpuBAR), uint64(0x1000), uint8(0))
	f.Add(^uint64(0), ^uint64(0), uint64(nowhere), uint64(1), uint8(0xff))
	f.Fuzz(func(t *testing.T, a, an, b, bn uint64, bits uint8) {
		in := Inputs{Mapped: bits&1 != 0, Translation: Translation(bits >> 1 & 3), MapType: MapType(bits >> 3 & 3),
			DMA: ViewOf(Range{a, an}, Range{b, bn})}
		if bits&0x20 != 0 {
			in.Pages = ViewOf(Range{b, bn})
		}
		if bits&0x40 != 0 {
			in.Resources = ViewOf(Range{a, an})
		}
		p := Decide(in, testMachine())
		if p.Memory == PeerToPeer && only(p.Places, KindRAM) {
			t.Errorf("RAM as peer-to-peer: %v", p)
		}
		if p.Memory == Unknown && p.Reason == "" {
			t.Errorf("unknown without a reason: %+v", in)
		}
	})
}

func TestJSON(t *testing.T) {
	for _, row := range rows {
		p := Decide(row.in, testMachine())
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var q Placement
		if err := json.Unmarshal(data, &q); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if q.String() != p.String() || q.Direct() != p.Direct() {
			t.Errorf("%v came back as %v", p, q)
		}
	}
	var m Memory
	if err := m.UnmarshalText([]byte("elsewhere")); err == nil {
		t.Error("an unknown word was accepted")
	}
}

// An index is that of one BAR: memory has none, and several have no one.
func TestJSONOfABAR(t *testing.T) {
	for _, c := range []struct {
		p    Place
		want string
	}{
		{Place{Kind: KindBAR, Device: "0000:01:00.0", Bytes: 1}, `"bar":0`},
		{Place{Kind: KindBAR, Device: "0000:01:00.0", BAR: 2, Bytes: 1}, `"bar":2`},
		{Place{Kind: KindBAR, Bytes: 1}, ""},
		{Place{Kind: KindRAM, Bytes: 1}, ""},
		{Place{Kind: KindCoherent, Device: "gpu", Bytes: 1}, ""},
	} {
		data, err := json.Marshal(c.p)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(data); strings.Contains(text, `"bar"`) != (c.want != "") || !strings.Contains(text, c.want) {
			t.Errorf("%+v is %s", c.p, text)
		}
		var back Place
		if err := json.Unmarshal(data, &back); err != nil || back != c.p {
			t.Errorf("%s came back as %+v, %v", data, back, err)
		}
	}
}
