// SPDX-License-Identifier: Apache-2.0

package redact

import "github.com/gpurdma/gpurdma/p2p/drivers"

// modules are drivers and modules of the kernel, and of GPUs and NICs, that many machines have. The name of another one
// may be its owner's.
var modules = setOf(`
	nvidia nvidia_drm nvidia_modeset nvidia_uvm nvidia_peermem nvidia_fs nv_peer_mem nvidia_vgpu_vfio gdrdrv nouveau nova_core nova_drm
	amdgpu amdkfd amd_sched radeon kfd xe i915 ast mgag200 bochs cirrus qxl vgem virtio_gpu virtio_pci virtio_net simpledrm hibmc udl habanalabs
	vfio vfio_pci vfio_pci_core vfio_iommu_type1 vfio_virqfd nvgrace_gpu_vfio_pci mlx5_vfio_pci pci_stub pciback iommufd xen_pciback uio uio_pci_generic igb_uio
	ib_core ib_uverbs ib_umad ib_cm iw_cm rdma_cm rdma_ucm ib_ipoib ib_peer_mem mlx_compat mlx5_core mlx5_ib mlx4_core mlx4_ib mlx4_en mlxfw mlxbf_gige mlx5_dpll
	bnxt_en bnxt_re ice irdma i40e i40iw efa ena mana mana_ib ionic ionic_rdma cxgb4 iw_cxgb4 hns3 hns_roce_hw_v2 qede qedr erdma hfi1 ib_qib ib_mthca vmw_pvrdma
	usnic_verbs enic rdma_rxe siw cxi_core cxi_ss1 ocrdma be2net iavf idpf gve fm10k ixgbe ixgbevf igb igc e1000 e1000e tg3 bnx2 bnx2x r8169 atlantic sfc nfp
	vmxnet3 hv_netvsc netvsc pci_hyperv xen_netfront liquidio octeontx2 rvu_af rvu_nicpf rvu_nicvf thunderx hinic hinic3 funeth pensando enetc fec stmmac cadence
	nvme nvme_core ahci megaraid_sas mpt3sas mpi3mr smartpqi hpsa aacraid pm80xx lpfc qla2xxx isci ata_piix virtio_blk virtio_scsi
	pcieport shpchp pciehp pci_endpoint_test switchtec ntb_hw_switchtec plx_dma ioatdma idxd idxd_uacce ptdma ccp intel_vsec intel_qat qat_4xxx qat_c62x dlb2 i10nm_edac
	xhci_hcd xhci_pci ehci_pci uhci_hcd ohci_pci snd_hda_intel i801_smbus i2c_i801 lpc_ich mei_me intel_lpss isst_if_pci isst_if_mmio pmt_telemetry skx_uncore icx_uncore spr_uncore
	piix4_smbus k10temp sp5100_tco amd64_edac ipmi_si i2c_designware_pci intel_ish_ipc proc_thermal thunderbolt cxl_pci cxl_mem cxl_acpi
	softgpu softgpu_importer peer_mem_test udmabuf dma_buf faux_driver platform xilinx_dma xocl xclmgmt qaic ivpu intel_vpu gaudi hl0 mtl tenstorrent
	apple_nvme tegra_drm nvgpu nvidia_p2p host1x arm_smmu_v3 hisi_sec2 hisi_hpre hisi_zip hns_dsaf`, rdmaDrivers()...)

// rdmaDrivers are those that package drivers has rules for.
func rdmaDrivers() (out []string) {
	for driver, d := range drivers.RdmaDrivers {
		out = append(out, driver, d.Module)
	}
	return out
}

// providers are those of libibverbs.
var providers = setOf(`bnxt_re cxgb4 efa erdma hfi1verbs hns i40iw ionic ipathverbs irdma mana mlx4 mlx5 mthca ocrdma qedr rxe siw usnic vmw_pvrdma`)

// peers are clients for peer memory.
var peers = setOf(`nv_mem amdkfd nv_mem_nc nvidia_peermem mlx5_0`)

// lsms are directories of securityfs, events are groups of trace events.
var (
	lsms   = setOf(`lockdown lsm apparmor selinux integrity ima evm smack tomoyo yama loadpin safesetid bpf landlock tpm0 tpm1 tdx sev coco slaunch ipe`)
	events = setOf(`dma_buf dma_fence drm dma iommu irq sched syscalls net tcp udp workqueue kmem pci power timer block nvme amdgpu i915 xe nvidia vfio rdma_core rpcrdma ib_mad ib_umad mlx5
		enable header_event header_page`)
	plugins = setOf(`gpu.yaml gpu.json gpu.sock rdma.yaml rdma.sock kubelet.sock kubelet_internal_checkpoint DEPRECATION nvidia.yaml nvidia.json nvidia-gpu.sock nvidia.sock amd.com_gpu amd.com_gpu.sock amd.yaml amd.json intel.yaml intel.json
		rdma-shared-dp.sock sriov.sock .sock .yaml .json`)
)

// lowWords are words of variables, in small letters.
var lowWords = setOf(`y n yes no on off true false try auto enable disable enabled disabled local all verbs efa tcp cxi psm3 shm sockets socket ib ofi none phb pix pxb sys loc nvl`)

// words are those that programs, the kernel and makers of hardware use in the texts that a snapshot keeps parts of.
var words = setOf(`
	on off yes no true false y n Y N auto none all any default force strict try lazy enable disable enabled disabled local dynamic static
	pt nopt passthrough iommu intel_iommu amd_iommu sm_on sm_off igfx_off fullflush forcedac noforce merge nomerge translated identity
	pci noats nommconf nomsi noaer realloc realloc= assign-busses hpmmiosize hpmmioprefsize hpmemsize hpbussize resource_alignment pcie_bus_perf pcie_bus_safe pcie_bus_peer2peer pcie_bus_tune_off
	big_root_window nocrs use_crs use_e820 no_e820 conf1 conf2 noacpi routeirq disable_acs_redir config_acs pcie_acs_override downstream multifunction id native compat performance powersave powersupersave
	numa_balancing pcie_ports pcie_aspm i915.force_probe xe.force_probe iommu.passthrough

	LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS Ring Tree ring tree Simple LL LL128 NVLS IB Socket OFI ib socket ofi tcp verbs efa cxi psm3 shm sockets ucx ibrc ibdevx ibgda ibuc libfabric
	cuda rocm ze gdr_copy cuda_copy cuda_ipc rocm_copy rocm_ipc rc ud dc rc_x ud_x dc_x rc_mlx5 ud_mlx5 dc_mlx5 rc_v ud_v gga self sm posix sysv cma knem xpmem
	get_zcopy put_zcopy get_ppln put_ppln am rkey_ptr gpumem hostmem memory vidmem sysmem
	mlx5 mlx4 ibp ibs roce json xml toml yaml conf so sock home etc usr opt lib lib64 var run tmp dev bin

	A100 A800 H20 H100 H200 H800 B100 B200 B300 GB10 GB200 GB300 GH200 L4 L40 L40S MI210 MI250 MI250X MI300A MI300X MI325X MI350X MI355X NVL72 NVL36
	NVIDIA Tesla Quadro GRID GeForce RTX GTX TITAN Ada Generation Embedded Laptop Workstation Server Edition Blackwell Superchip PRO Pro PCIE DGX Display DRIVE CMP Thor Orin Spark Max-Q MaxQ NVL PCIe PCI AC MIG
	GPU Ti SUPER SFF Graphics Device Model Video BIOS Bus Type Location Minor Firmware Excluded DMA Size Mask IRQ UUID Yes No
	NVRM version UNIX Kernel Module Release Build Open for Debug Beta x86_64 aarch64 ppc64le

	Intel Corp Corporation Inc Inc. Ltd Ltd. LLC Co. GmbH Technology Technologies Computer Systems International Enterprise Micro Advanced Devices Incorporated Limited
	AMD EPYC Xeon Gold Platinum Silver Bronze Processor CPU Core GenuineIntel AuthenticAMD HygonGenuine CentaurHauls POWER Grace Neoverse Ampere Altra
	QEMU KVM VMware VMware, Virtual Machine Platform VirtualBox Google Compute Engine OpenStack Nova Foundation HVM domU Nutanix AHV oVirt Node RHEV Red Hat Xen BHYVE Parallels Amazon EC2 Alibaba Cloud Microsoft Hyper-V Standard PC Oracle
	Supermicro GIGABYTE Giga Computing Hewlett Packard Hewlett-Packard HPE HP Dell Lenovo IBM ADLINK ASUS ASUSTeK ASRockRack ASRock Rack Quanta Cloud QCT QuantaGrid Wiwynn Wistron Foxconn Ingrasys Inventec Pegatron MiTAC Fujitsu Huawei Inspur H3C ZTE Cisco Cavium Marvell Apple
	Atos Bull Eviden Systems AIVRES Hyve Compal PowerEdge ProLiant ThinkSystem Cray Gen10 Gen10Plus Gen11 Gen12 Plus DGXA100 DGXH100 DGXB200 HGX i440FX PIIX Q35 ICH9 metal

	DOWN INIT ARMED ACTIVE ACTIVE_DEFER Sleep Polling Disabled PortConfigurationTraining LinkUp LinkErrorRecovery Phy Test InfiniBand Ethernet Unknown
	Gb/sec SDR DDR QDR FDR10 FDR EDR HDR NDR XDR RoCE IB/RoCE v1 v2 CA RNIC usNIC unspecified pkg GT/s Gb/s`)
