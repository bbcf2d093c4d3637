// SPDX-License-Identifier: Apache-2.0

package lspci

import "strings"

// classes are the names that lspci prints for classes without -n, from the file
// pci.ids. A name that stands for two has the subclass of its own.
var classes = map[string]string{
	"non-vga unclassified device": "0000", "vga compatible unclassified device": "0001", "image coprocessor": "0005",
	"scsi storage controller": "0100", "ide interface": "0101", "floppy disk controller": "0102", "ipi bus controller": "0103",
	"raid bus controller": "0104", "ata controller": "0105", "sata controller": "0106", "serial attached scsi controller": "0107",
	"non-volatile memory controller": "0108", "universal flash storage controller": "0109", "mass storage controller": "0180",
	"ethernet controller": "0200", "token ring network controller": "0201", "fddi network controller": "0202", "atm network controller": "0203",
	"isdn controller": "0204", "worldfip controller": "0205", "picmg controller": "0206", "infiniband controller": "0207",
	"fabric controller": "0208", "network controller": "0280",
	"vga compatible controller": "0300", "xga compatible controller": "0301", "3d controller": "0302", "display controller": "0380",
	"multimedia video controller": "0400", "multimedia audio controller": "0401", "computer telephony device": "0402", "audio device": "0403", "multimedia controller": "0480",
	"ram memory": "0500", "flash memory": "0501", "cxl": "0502", "memory controller": "0580",
	"host bridge": "0600", "isa bridge": "0601", "eisa bridge": "0602", "microchannel bridge": "0603", "pci bridge": "0604",
	"pcmcia bridge": "0605", "nubus bridge": "0606", "cardbus bridge": "0607", "raceway bridge": "0608",
	"semi-transparent pci-to-pci bridge": "0609", "infiniband to pci host bridge": "060a", "bridge": "0680",
	"serial controller": "0700", "parallel controller": "0701", "multiport serial controller": "0702", "modem": "0703", "gpib controller": "0704",
	"smard card controller": "0705", "communication controller": "0780",
	"pic": "0800", "dma controller": "0801", "timer": "0802", "rtc": "0803", "pci hot-plug controller": "0804", "sd host controller": "0805",
	"iommu": "0806", "system peripheral": "0880", "timing card": "0899",
	"keyboard controller": "0900", "digitizer pen": "0901", "mouse controller": "0902", "scanner controller": "0903", "gameport controller": "0904", "input device controller": "0980",
	"generic docking station": "0a00", "docking station": "0a80",
	"386": "0b00", "486": "0b01", "pentium": "0b02", "alpha": "0b10", "power pc": "0b20", "mips": "0b30", "co-processor": "0b40",
	"firewire (ieee 1394)": "0c00", "access bus": "0c01", "ssa": "0c02", "usb controller": "0c03", "fibre channel": "0c04", "smbus": "0c05",
	"infiniband": "0c06", "ipmi interface": "0c07", "sercos interface": "0c08", "canbus": "0c09", "serial bus controller": "0c80",
	"irda controller": "0d00", "consumer ir controller": "0d01", "rf controller": "0d10", "bluetooth": "0d11", "broadband": "0d12",
	"802.1a controller": "0d20", "802.1b controller": "0d21", "wireless controller": "0d80",
	"i2o":                     "0e00",
	"satellite tv controller": "0f01", "satellite audio communication controller": "0f02", "satellite voice communication controller": "0f03", "satellite data communication controller": "0f04",
	"network and computing encryption device": "1000", "entertainment encryption device": "1010", "encryption controller": "1080",
	"dpio module": "1100", "performance counters": "1101", "communication synchronizer": "1110", "signal processing management": "1120", "signal processing controller": "1180",
	"processing accelerators": "1200", "snia smart data accelerator interface (sdxi) controller": "1201",
	"non-essential instrumentation": "1300", "coprocessor": "4000", "unassigned class": "ff00",
}

// classOf is the class of a name, "" of one that is not known.
func classOf(name string) string { return classes[strings.ToLower(name)] }

// The classes that these rules go by.
const (
	classHost       = "0600"
	classIOMMU      = "0806" // a part of the root complex
	classInfiniBand = "0207"
	classNVMe       = "0108"
)

// network reports a network function, which can have an RDMA device. The class
// 0c06 is InfiniBand's of old cards.
func network(class string) bool { return strings.HasPrefix(class, "02") || class == "0c06" }

// display reports a function that can be a GPU.
func display(class string) bool {
	return strings.HasPrefix(class, "03") || strings.HasPrefix(class, "12")
}

// matters reports a function that checks of package p2p look at: one that can be a GPU,
// a NIC, an NVMe controller or a bridge. A machine has thousands of others.
func matters(class string) bool {
	return class == "" || display(class) || network(class) || strings.HasPrefix(class, "06") || class == classNVMe
}
