// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Names that the kernel or a distribution gives, which say nothing of the machine's owner.
var commonNames = map[kind]pattern{
	ofRDMA: expression(`^(?:mlx[45]_(?:bond_)?\d{1,4}|(?:mthca|qedr|hns|irdma|bnxt_re|bnxt_re_bond|cxgb4|cxgb4_|hns_|ionic|ionic_|mana|mana_|efa_|erdma_|hfi1_|qib|i40iw|usnic_|vmw_pvrdma|rxe|siw|soft|softrdma|cxi)\d{0,4}` +
		`|(?:roce|ib|iw|opa|rdma)(?:P\d{1,5}|s\d{1,4}|[opfdnu]\d{1,3})+)$`),
	ofNet: expression(`^(?:lo|(?:eth|ib|bond|team|hsn|rdma|net|veth|usb|dummy)\d{1,4}|docker0|cni0|virbr0` +
		`|(?:en|ib|wl|sl)(?:P\d{1,5}|s\d{1,4}|(?:[opfdnuciv]|np)\d{1,3})+)$`),
	ofIOMMU: expression(`^(?:dmar|ivhd|iommu|smmu3?\.|riscv-iommu-|virtio-iommu)\d{0,4}$|^(?:arm-)?smmu(?:-v)?3?\.\d?\.?(?:0x)?[0-9a-f]{1,16}$`),
}

// releaseWords are the words that kernels of distributions have in their releases.
var releaseWords = setOf(`amd64 arm64 x86_64 aarch64 ppc64le ppc64el s390x riscv64 i686 686 pae generic lowlatency server virtual cloud rt lts zen hardened
	azure aws gcp oracle oem nvidia tegra kvm ibm intel iotg raspi gke eks gkeop hwe fips default preempt uek el7 el8 el9 el10 el7uek el8uek el9uek
	rc bpo deb10 deb11 deb12 deb13 arch1 arch2 cm2 azl3 amzn2 amzn2023 64k 16k unsigned trunk common dirty bluefield linuxkit microsoft standard WSL2 pve longterm debug fb cos bottlerocket flatcar talos coreos`)

// inRelease matches the numbers and the names with a number in a release: fc40, el9_4, bpo12, 150400.24.
var inRelease = expression(`^(?:\d{1,6}|20\d{6}|fc\d{2}|el\d{1,2}|el\d_\d{1,2}|el\d{1,2}uek|rc\d{1,2}|bpo\d?|deb\d{1,2}u?\d{0,2}|bpo\d{1,2}|arch\d|amzn\d{1,4}|azl\d|cm\d|mlx|bfb|g[0-9a-f]{7,12})$`)

func common(of kind, name string) bool {
	switch of {
	case ofRDMA, ofNet: // an RDMA device may have a network device's name
		return commonNames[ofRDMA].MatchString(name) || commonNames[ofNet].MatchString(name)
	case ofModule:
		return modules.has(machine.ModuleOf(name))
	case ofProvider:
		return providers.has(name)
	case ofWord:
		return words.has(name)
	case ofLSM:
		return lsms.has(name)
	case ofEvent:
		return events.has(name)
	case ofPeer:
		return peers.has(name)
	case ofPlugin, ofCDI:
		return plugins.has(name)
	case ofDir:
		return directories.has(name) || aDirectory.MatchString(name)
	}
	known, ok := commonNames[of]
	return ok && known.MatchString(name)
}

// release is a kernel's release, with what an administrator has built into it replaced.
func (r *Redactor) release(text string) string {
	if at := strings.IndexAny(text, "-+"); at >= 0 {
		if hidden := anIPv4.FindStringSubmatch(text[at:]); hidden != nil {
			return r.whole(text, strings.Replace(text, hidden[1], r.name(ofRelease, hidden[1]), 1))
		}
	}
	var out strings.Builder
	at, unknown := 0, -1 // where the part begins that is replaced
	end := 0
	for _, part := range releaseParts.FindAllStringIndex(text, -1) {
		word := text[part[0]:part[1]]
		known := releaseWords.has(word) || inRelease.MatchString(word)
		switch {
		case known && unknown >= 0:
			out.WriteString(text[at:unknown] + r.name(ofRelease, text[unknown:end]))
			at, unknown = end, -1
		case !known && unknown < 0:
			unknown = part[0]
		}
		end = part[1]
	}
	if unknown >= 0 {
		out.WriteString(text[at:unknown] + r.name(ofRelease, text[unknown:end]))
		at = end
	}
	return r.whole(text, out.String()+text[at:])
}

// releaseParts match what stands between the dots, the signs and the underscores of a release.
var releaseParts = expression(`x86_64|el\d_\d{1,2}|[^\s.+~_-]+`)
