// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// Encryption says whether the processor encrypts a guest's memory (SEV, TDX), and why.
type Encryption struct {
	Is    placement.Answer
	Why   string
	Where []string
}

// EncryptionLine matches the line of the kernel's log that names the encryption of memory:
// print_mem_encrypt_feature_info() of arch/x86/mm/mem_encrypt.c. Linux up to 5.10 has the second
// form.
var EncryptionLine = regexp.MustCompile(`Memory Encryption Features active:(.*)|Secure Encrypted Virtualization \(SEV\) active`)

// Encrypted reads whether this is a guest whose memory the processor encrypts. Linux on Intel has
// a flag of the processor for it, except below Hyper-V's paravisor, which hides TDX. On AMD only
// the log says it.
func (m *Machine) Encrypted() Encryption {
	return Once(m, "encryption of memory", m.readEncryption)
}

func (m *Machine) readEncryption() Encryption {
	if m.Virtual.Is == placement.No {
		return Encryption{placement.No, m.Virtual.Why, m.Virtual.Where}
	}
	cpu := m.Read("proc/cpuinfo")
	text, x86 := cpu.Line("flags")
	flags := strings.Fields(text)
	vendor, _ := cpu.Line("vendor_id")
	switch maker := m.Read("sys/class/dmi/id/sys_vendor"); {
	case slices.Contains(flags, "tdx_guest"):
		return Encryption{placement.Yes, "the processor's flag tdx_guest", cpu.At()}
	case x86 && vendor == "GenuineIntel" && (maker.Err == nil || maker.Gone()) && !strings.Contains(maker.Text, "Microsoft"):
		return Encryption{placement.No, "the processor has no flag tdx_guest", cpu.At()}
	case !x86:
		return Encryption{placement.AnswerUnknown, "no file of this architecture says it", cpu.At()}
	}
	log := m.KernelLog()
	for _, line := range log.Lines {
		named := EncryptionLine.FindStringSubmatch(line)
		switch {
		case named == nil:
		case strings.Contains(line, "SEV") || strings.Contains(line, "TDX"):
			return Encryption{placement.Yes, strings.TrimSpace(line), log.At()}
		case strings.Contains(line, "SME"):
			return Encryption{placement.No, strings.TrimSpace(line), log.At()}
		default:
			return Encryption{placement.AnswerUnknown, strings.TrimSpace(line), log.At()}
		}
	}
	switch {
	case log.Err != nil:
		return Encryption{placement.AnswerUnknown, log.Err.Error(), log.At()}
	case log.Cut:
		return Encryption{placement.AnswerUnknown, "the log does not reach back to the boot", log.At()}
	}
	return Encryption{placement.No, "no line of the kernel's log names encryption of memory", log.At()}
}
