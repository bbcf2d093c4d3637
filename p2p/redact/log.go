// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Log returns the lines of the kernel's log that a check looks for, in the form of /dev/kmsg and redacted by Line.
// cut says that the beginning was overwritten.
func (r *Redactor) Log(all []string, cut bool) []byte {
	first := 0
	if cut {
		first = 1
	}
	var out strings.Builder
	n := first
	fmt.Fprintf(&out, "6,%d,0,-;the kernel's log, as far as checks look at it\n", n)
	for _, line := range all {
		if p2p.Loggable(line) {
			n++
			fmt.Fprintf(&out, "6,%d,0,-;%s\n", n, r.Line(line))
		}
	}
	return []byte(out.String())
}

// left stands for words of a line that are left out.
const left = "…"

// kept match what is kept of a line beside the kernel's words.
var kept = []pattern{
	expression(p2p.FaultAddress.String()),
	expression(`NVRM: Xid \(PCI:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\)`),
	expression(`pci=(?:disable_acs_redir=)?(?:(?:[0-9a-f]{4,5}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7][;,]?){1,40}`),
	expression(`\b(?:event|flags|domain)[ =:]*0x[0-9a-f]{1,4}\b`),
	expression(`event: F_(?:UUT|STE_FETCH|BAD_ATS_TREQ|STREAM_DISABLED|TRANSL_FORBIDDEN|CD_FETCH|WALK_EABT|TRANSLATION|ADDR_SIZE|ACCESS|PERMISSION|TLB_CONFLICT|CFG_CONFLICT|VMS_FETCH)\b`),
	expression(`event: F_`),
	expression(`\[DMA (?:Write|Read)(?: NO_PASID)?\]`),
	expression(`Request device \[[0-9a-f:.]{1,16}\]`),
	expression(`\): \d{1,3},`), // an Xid's number
}

// logWords are the kernel's words in lines that checks look for.
var logWords = setOf(`
	ACS redirect is set between the client and provider to disable for this path add kernel parameter Host bridge not in P2PDMA whitelist cannot be used peer-to-peer DMA as
	NVRM importer unable handle MMIO topology supported mapping type FORCE_PCIE dma-buf attach failed Xid PCI PCIe P2P access from peer device chipset by
	DMAR Write Read NO_PASID Request fault addr reason AMD-Vi Event logged IO_PAGE_FAULT address flags domain arm-smmu-v3 event client sid ssid iova ipa class
	F_TRANSLATION F_ADDR_SIZE F_ACCESS F_PERMISSION nvidia_peermem nv_peer_mem nvidia-peermem disagrees about version of symbol Unknown ib_register_peer_memory_client ib_unregister_peer_memory_client err
	detected invalid context AER Bus Error error errors severity Corrected Uncorrected Fatal Non-Fatal Multiple message received id Physical Link Data Transaction Layer Receiver Transmitter ID status mask first
	available bandwidth limited link at capable with Gb/s GT/s x1 x2 x4 x8 x16 x32 BAR can't assign no space to size bus mem io pref 64bit
	Memory Encryption Features active Intel AMD SME SEV SEV-ES SEV-SNP TDX Secure Encrypted Virtualization on GPU has fallen off`)

// Line returns a line of the kernel's log with the words of the kernel, PCI addresses, the replaced names of
// network and RDMA devices, and the fields that a check reads.
func (r *Redactor) Line(line string) string {
	var fields [][]int
	for _, re := range kept {
		fields = append(fields, re.FindAllStringIndex(line, -1)...)
	}
	slices.SortFunc(fields, func(a, b []int) int { return a[0] - b[0] })
	var out strings.Builder
	at := 0
	for _, f := range fields {
		if f[0] < at {
			continue
		}
		out.WriteString(r.logText(line[at:f[0]]))
		out.WriteString(line[f[0]:f[1]])
		at = f[1]
	}
	out.WriteString(r.logText(line[at:]))
	text := runs.ReplaceAllString(out.String(), left)
	return r.whole(line, text)
}

// runs match several words that were left out.
var runs = expression(left + `(?:[^0-9A-Za-z\[\]]*` + left + `)+`)

var aShortNumber = expression(`^\d{1,3}(?:\.\d{1,3})?$`)

func (r *Redactor) logText(s string) string {
	return text(s, func(token string) string {
		if device := r.device(token); device != "" {
			return device
		}
		if logWords.has(token) || aShortNumber.MatchString(token) || modules.has(machine.ModuleOf(token)) {
			return token
		}
		return left
	})
}
