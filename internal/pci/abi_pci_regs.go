// SPDX-License-Identifier: Apache-2.0

package pci

// Registers of PCI configuration space, by the names of
// include/uapi/linux/pci_regs.h.
const (
	cfgSpaceSize    = 256  // PCI_CFG_SPACE_SIZE
	cfgSpaceExpSize = 4096 // PCI_CFG_SPACE_EXP_SIZE

	regStatus     = 0x06 // PCI_STATUS
	statusCapList = 0x10 // PCI_STATUS_CAP_LIST
	regBAR0       = 0x10 // PCI_BASE_ADDRESS_0, and again each 4 bytes
	barIO         = 0x01 // PCI_BASE_ADDRESS_SPACE_IO
	barType       = 0x06 // PCI_BASE_ADDRESS_MEM_TYPE_MASK
	bar64         = 0x04 // PCI_BASE_ADDRESS_MEM_TYPE_64: the next register has the upper half
	barFlags      = 0x0f // the bits outside of PCI_BASE_ADDRESS_MEM_MASK
	regCapList    = 0x34 // PCI_CAPABILITY_LIST
	stdHeaderSize = 0x40 // PCI_STD_HEADER_SIZEOF: what an unprivileged reader gets

	capIDExp = 0x10 // PCI_CAP_ID_EXP

	expFlags     = 2      // PCI_EXP_FLAGS
	expFlagsType = 0x00f0 // PCI_EXP_FLAGS_TYPE

	expDevCap           = 0x04   // PCI_EXP_DEVCAP
	expDevCapPayload    = 0x0007 // PCI_EXP_DEVCAP_PAYLOAD
	expDevCtl           = 0x08   // PCI_EXP_DEVCTL
	expDevCtlRelax      = 0x0010 // PCI_EXP_DEVCTL_RELAX_EN
	expDevCtlPayload    = 0x00e0 // PCI_EXP_DEVCTL_PAYLOAD
	expDevCtlReadRQ     = 0x7000 // PCI_EXP_DEVCTL_READRQ
	expDevCtl2          = 0x28   // PCI_EXP_DEVCTL2
	expDevCtl2AtomicReq = 0x0040 // PCI_EXP_DEVCTL2_ATOMIC_REQ
	expDevCtl2Egress    = 0x0080 // PCI_EXP_DEVCTL2_ATOMIC_EGRESS_BLOCK

	extCapIDACS = 0x0d // PCI_EXT_CAP_ID_ACS
	acsCap      = 0x04 // PCI_ACS_CAP
	acsCtrl     = 0x06 // PCI_ACS_CTRL

	extCapIDReBAR   = 0x15   // PCI_EXT_CAP_ID_REBAR
	rebarCap        = 0x04   // PCI_REBAR_CAP, and again each 8 bytes
	rebarSizesShift = 4      // of PCI_REBAR_CAP_SIZES: the lowest is 1 MiB
	rebarCtrl       = 0x08   // PCI_REBAR_CTRL
	rebarCtrlBAR    = 0x0007 // PCI_REBAR_CTRL_BAR_IDX
	rebarCtrlCount  = 0x00e0 // PCI_REBAR_CTRL_NBAR_MASK, of the first only

	extCapIDATS = 0x0f   // PCI_EXT_CAP_ID_ATS
	atsCtrl     = 0x06   // PCI_ATS_CTRL
	atsEnable   = 0x8000 // PCI_ATS_CTRL_ENABLE
)

// Port is the PCI Express type of a function.
type Port int

// The types that make a topology.
const (
	PortNone       Port = -1
	PortEndpoint   Port = 0x0 // PCI_EXP_TYPE_ENDPOINT
	PortRoot       Port = 0x4 // PCI_EXP_TYPE_ROOT_PORT
	PortUpstream   Port = 0x5 // PCI_EXP_TYPE_UPSTREAM
	PortDownstream Port = 0x6 // PCI_EXP_TYPE_DOWNSTREAM
)

// ACSBits are bits of the ACS capability and control registers.
type ACSBits uint16

// The bits.
const (
	ACSSourceValidation   ACSBits = 0x0001 // PCI_ACS_SV
	ACSTranslationBlock   ACSBits = 0x0002 // PCI_ACS_TB
	ACSRequestRedirect    ACSBits = 0x0004 // PCI_ACS_RR
	ACSCompletionRedirect ACSBits = 0x0008 // PCI_ACS_CR
	ACSUpstreamForward    ACSBits = 0x0010 // PCI_ACS_UF
	ACSEgressControl      ACSBits = 0x0020 // PCI_ACS_EC
	ACSDirectTranslated   ACSBits = 0x0040 // PCI_ACS_DT
)
