// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"math/bits"
	"regexp"
	"strings"
)

// express is the PCI Express capability.
type express struct {
	known   bool // kind
	kind    uint8
	version uint8 // 0: -v does not print it

	payloadCap         int // bytes
	payload, request   int
	relaxed            bool
	atomicRequests     bool
	atomicsBlocked     bool
	payloadRead        bool
	controlRead        bool
	relaxedRead        bool
	atomicsRead        bool
	maxSpeed, maxWidth string // as lspci has them: "32", "16"
	speed, width       string
}

// Types of PCI Express functions: PCI_EXP_TYPE_… of include/uapi/linux/pci_regs.h.
const (
	kindEndpoint   = 0x0
	kindLegacy     = 0x1
	kindRootPort   = 0x4
	kindUpstream   = 0x5
	kindDownstream = 0x6
	kindToPCI      = 0x7
	kindFromPCI    = 0x8
	kindIntegrated = 0x9
	kindCollector  = 0xa
)

// kinds are lspci's names of the types. If one name is the beginning of another, the longer one comes first.
var kinds = []struct {
	name string
	kind uint8
}{
	{"Endpoint", kindEndpoint}, {"Legacy Endpoint", kindLegacy}, {"Root Port", kindRootPort}, {"Upstream Port", kindUpstream},
	{"Downstream Port", kindDownstream}, {"PCI-Express to PCI/PCI-X Bridge", kindToPCI}, {"PCI/PCI-X to PCI-Express Bridge", kindFromPCI},
	{"Root Complex Integrated Endpoint", kindIntegrated}, {"Root Complex Event Collector", kindCollector},
}

var (
	expressLine = regexp.MustCompile(`^Express (?:\(v(\d)\) )?(.*)$`)
	deviceCan   = regexp.MustCompile(`^DevCap:\s*MaxPayload (\d{3,4}) bytes,`)
	deviceHas   = regexp.MustCompile(`^MaxPayload (\d{3,4}) bytes, MaxReadReq (\d{3,4}) bytes$`)
	linkCan     = regexp.MustCompile(`^LnkCap:.*\bSpeed ([\d.]{1,4})GT/s[^,]*, Width x(\d{1,2})[, ]`)
	linkHas     = regexp.MustCompile(`^LnkSta:.*\bSpeed ([\d.]{1,4})GT/s[^,]*, Width x(\d{1,2})(?:[, ]|$)`)
)

func expressOf(line string) *express {
	e := &express{}
	var version, kind string
	match(expressLine, line, &version, &kind)
	e.version = number[uint8](version, 10)
	for _, k := range kinds {
		if rest, ok := strings.CutPrefix(kind, k.name); ok && (rest == "" || rest[0] == ',' || rest[0] == ' ') {
			e.known, e.kind = true, k.kind
		}
	}
	return e
}

func (e *express) add(text string) {
	var first, second string
	switch {
	case match(deviceCan, text, &first):
		e.payloadCap = int(number[uint16](first, 10))
		e.payloadRead = power(e.payloadCap)
	case match(deviceHas, text, &first, &second):
		e.payload, e.request = int(number[uint16](first, 10)), int(number[uint16](second, 10))
		e.controlRead = power(e.payload) && power(e.request)
	case strings.HasPrefix(text, "RlxdOrd"):
		e.relaxed, e.relaxedRead = flag(text, "RlxdOrd")
	case strings.HasPrefix(text, "AtomicOpsCtl:"):
		e.atomics(strings.TrimPrefix(text, "AtomicOpsCtl:"))
	case match(linkCan, text, &first, &second):
		e.maxSpeed, e.maxWidth = first, second
	case match(linkHas, text, &first, &second):
		e.speed, e.width = first, second
	}
}

// atomics reads the flags that lspci prints for the type of the function.
func (e *express) atomics(text string) {
	var ok1, ok2 bool
	e.atomicRequests, ok1 = flag(text, "ReqEn")
	e.atomicsBlocked, ok2 = flag(text, "EgressBlck")
	switch e.kind {
	case kindRootPort:
		e.atomicsRead = ok1 && ok2
	case kindUpstream, kindDownstream:
		e.atomicsRead = ok2
	default:
		e.atomicsRead = ok1
	}
}

// read reports that all registers were in the text. A capability of version 1 has
// no second control register, and bridges to PCI have no atomic operations.
func (e *express) read() bool {
	without := e.version == 1 || e.kind == kindToPCI || e.kind == kindFromPCI || e.kind == kindCollector
	return e.known && e.payloadRead && e.controlRead && e.relaxedRead && (e.atomicsRead || without)
}

// leastPacket is the size that the registers count from, in bytes.
const leastPacket = 128

// power reports a size that the registers can hold.
func power(size int) bool {
	return size >= leastPacket && size <= leastPacket<<7 && bits.OnesCount(uint(size)) == 1
}

// code is the register's number for a size.
func code(size int) uint16 { return uint16(bits.Len(uint(size)) - bits.Len(uint(leastPacket))) }

// rates are the speeds of links as sysfs writes them: pci_speed_string() of
// drivers/pci/probe.c.
var rates = map[string]string{
	"2.5": "2.5 GT/s PCIe", "5": "5.0 GT/s PCIe", "8": "8.0 GT/s PCIe", "16": "16.0 GT/s PCIe", "32": "32.0 GT/s PCIe", "64": "64.0 GT/s PCIe",
}
