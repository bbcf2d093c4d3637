// SPDX-License-Identifier: Apache-2.0

package variables

import "github.com/gpurdma/gpurdma/placement"

const (
	y = placement.Yes
	n = placement.No
)

// The machines of the tests, each after a public description.

var (
	sapphire = CPU{Vendor: "GenuineIntel", Family: 6, Model: 143}
	emerald  = CPU{Vendor: "GenuineIntel", Family: 6, Model: 207}
	haswell  = CPU{Vendor: "GenuineIntel", Family: 6, Model: 63}
	genoa    = CPU{Vendor: "AuthenticAMD", Family: 25, Model: 17}
	grace    = CPU{Vendor: "0x41", Model: 0xd4f}
)

func gpu(name string, v Vendor, d Distance, nics ...string) GPU {
	return GPU{Name: name, Vendor: v, Nearest: d, NearestAny: d, NearestNICs: nics, Coherent: n, SmallBAR: n, MLOPart: n}
}

func nic(name, driver string, gids ...GID) NIC {
	p := Port{Num: 1, RoCE: n}
	if len(gids) > 0 {
		p.RoCE, p.GIDs = y, map[int]GID{}
		for i, g := range gids {
			p.GIDs[i] = g
		}
	}
	return NIC{Name: name, Driver: driver, Bond: n, DataDirect: n, OwnRoute: n, Ports: []Port{p}}
}

func of(gpus []GPU, cpu CPU, nics ...NIC) Facts {
	f := Facts{
		GPUs: gpus, NICs: nics, CPU: cpu, Devices: []string{}, NetDevices: []string{"lo", "eth0"},
		DMABuf: y, PeerMem: n, PeerModule: n, Virtual: n, Config: ConfigBoot, ConfigGzip: n,
	}
	for _, n := range nics {
		f.Devices = append(f.Devices, n.Name)
	}
	return f
}

func with(f Facts, change func(*Facts)) Facts {
	f.GPUs, f.NICs = append([]GPU{}, f.GPUs...), append([]NIC{}, f.NICs...)
	change(&f)
	return f
}

// roce is the usual GID table of an interface with an IPv4 address.
var roce = []GID{GIDOther, GIDLinkLocal, GIDOther, GIDRoCEv2}

// dgx is an HGX H100: each GPU has a NIC at its switch.
func dgx() Facts {
	return of([]GPU{gpu("gpu0", NVIDIA, PIX, "mlx5_0"), gpu("gpu1", NVIDIA, PIX, "mlx5_1")}, sapphire, nic("mlx5_0", mlx5), nic("mlx5_1", mlx5))
}

// peer is dgx with nvidia-peermem in place of dma-bufs.
func peer() Facts {
	return with(dgx(), func(f *Facts) { f.DMABuf, f.PeerMem, f.PeerModule = n, y, y })
}

// rooted has its NICs behind other root ports than the GPUs: openucx/ucx#10955.
func rooted() Facts {
	return of([]GPU{gpu("gpu0", NVIDIA, PHB, "mlx5_0"), gpu("gpu1", NVIDIA, PHB, "mlx5_1")}, emerald, nic("mlx5_0", mlx5), nic("mlx5_1", mlx5))
}

// twoNodes has one RoCE NIC for two NUMA nodes: openucx/ucx#11121.
func twoNodes() Facts {
	return of([]GPU{gpu("gpu0", NVIDIA, SYS, "bnxt_re0"), gpu("gpu1", NVIDIA, PHB, "bnxt_re0")}, genoa, nic("bnxt_re0", "bnxt_en", roce...))
}

// gh200 has its NICs on Grace's own ports: NVIDIA/nccl#1579.
func gh200() Facts {
	return with(of([]GPU{gpu("gpu0", NVIDIA, PHB, "mlx5_0"), gpu("gpu1", NVIDIA, PHB, "mlx5_1")}, grace, nic("mlx5_0", mlx5), nic("mlx5_1", mlx5)), func(f *Facts) {
		f.GPUs[0].Coherent, f.GPUs[1].Coherent = y, y
	})
}

// gb300 has ConnectX-8 with Data Direct functions beside the GPUs: NVIDIA/aicr#1413.
func gb300() Facts {
	return with(gh200(), func(f *Facts) {
		for i := range f.GPUs {
			f.GPUs[i].Nearest, f.GPUs[i].NearestAny = PXB, PXB
			f.NICs[i].DataDirect = y
		}
	})
}

// bonded has one device for two ports of a LAG: openucx/ucx#11709.
func bonded() Facts {
	return with(of([]GPU{gpu("gpu0", NVIDIA, PIX, "mlx5_bond_0")}, sapphire, nic("mlx5_bond_0", mlx5, roce...)), func(f *Facts) { f.NICs[0].Bond = y })
}

// mi300x is an AMD node with dma-bufs and without a peer-memory client: ROCm/rocm-systems#3258.
func mi300x() Facts {
	return of([]GPU{gpu("gpu0", AMD, PIX, "mlx5_0"), gpu("gpu1", AMD, PIX, "mlx5_1")}, genoa, nic("mlx5_0", mlx5), nic("mlx5_1", mlx5))
}

// amdPeer is mi300x with the client of amdgpu-dkms.
func amdPeer() Facts { return with(mi300x(), func(f *Facts) { f.PeerMem = y }) }

// p5 is a virtual machine with EFA.
func p5() Facts {
	return with(of([]GPU{gpu("gpu0", NVIDIA, PIX, "rdmap16s27"), gpu("gpu1", NVIDIA, PIX, "rdmap32s27")}, genoa, nic("rdmap16s27", efa), nic("rdmap32s27", efa)), func(f *Facts) {
		f.Virtual = y
	})
}

// amazon is p5 with Amazon's build of efa.
func amazon() Facts {
	return with(p5(), func(f *Facts) { f.NICs[0].OwnRoute, f.NICs[1].OwnRoute = y, y })
}

// ponteVecchio has Slingshot: fi_cxi(7).
func ponteVecchio() Facts {
	return of([]GPU{gpu("gpu0", Intel, PHB, "cxi0"), gpu("gpu1", Intel, PHB, "cxi0")}, sapphire, nic("cxi0", cxi))
}

// frontier has Slingshot and AMD processors.
func frontier() Facts {
	return of([]GPU{gpu("gpu0", AMD, PIX, "cxi0")}, genoa, nic("cxi0", cxi))
}

// refused is dgx with no direct pair.
func refused() Facts {
	return with(dgx(), func(f *Facts) {
		for i := range f.GPUs {
			f.GPUs[i].Nearest, f.GPUs[i].NearestNICs = NoNIC, nil
		}
	})
}

// t4 has GPUs with a BAR of 256 MiB.
func t4() Facts {
	return with(dgx(), func(f *Facts) { f.GPUs[0].SmallBAR = y })
}

// headless has no GPU.
func headless() Facts { return with(dgx(), func(f *Facts) { f.GPUs = nil }) }

// offline has no RDMA NIC.
func offline() Facts {
	return with(dgx(), func(f *Facts) { f.NICs, f.Devices = nil, []string{} })
}

// blank is a machine with the same devices, of which nothing else was read.
func blank(f Facts) Facts {
	out := Facts{}
	for _, g := range f.GPUs {
		out.GPUs = append(out.GPUs, GPU{Name: g.Name, Vendor: g.Vendor})
	}
	for _, n := range f.NICs {
		out.NICs = append(out.NICs, NIC{Name: n.Name, Driver: n.Driver, Ports: []Port{{Num: 1}}})
	}
	return out
}
