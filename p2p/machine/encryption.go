// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// EncryptionLine matches the line of the kernel's log that names the encryption of memory:
// print_mem_encrypt_feature_info() of arch/x86/mm/mem_encrypt.c. Linux up to 5.10 has the second
// form.
var EncryptionLine = regexp.MustCompile(`Memory Encryption Features active:|Secure Encrypted Virtualization \(SEV\) active`)

// Encrypted says whether the machine is a guest whose memory the processor encrypts (SEV, TDX).
// On Intel, Linux shows it as a flag of the processor, except below Hyper-V's paravisor, which
// hides TDX. On AMD only the kernel's log shows it.
func (m *Machine) Encrypted() Fact {
	return Once(m, "encryption of memory", m.readEncryption)
}

func (m *Machine) readEncryption() Fact {
	if m.Virtual.Is == placement.No {
		return Fact{placement.No, m.Virtual.Why, m.Virtual.Where}
	}
	cpu := m.Read("proc/cpuinfo")
	text, x86 := cpuFlags(cpu)
	flags := strings.Fields(text)
	vendor, _ := cpu.Line("vendor_id")
	switch maker := m.Read("sys/class/dmi/id/sys_vendor"); {
	case slices.Contains(flags, "tdx_guest"):
		return Fact{placement.Yes, "the processor's flag tdx_guest", cpu.At()}
	case x86 && vendor == "GenuineIntel" && (maker.Err == nil || maker.Gone()) && !strings.Contains(maker.Text, "Microsoft"):
		return Fact{placement.No, "the processor has no flag tdx_guest", cpu.At()}
	case !x86:
		return Fact{placement.AnswerUnknown, "no file of this architecture says it", cpu.At()}
	}
	log := m.KernelLog()
	for _, line := range log.Lines {
		switch {
		case !EncryptionLine.MatchString(line):
		case strings.Contains(line, "SEV") || strings.Contains(line, "TDX"):
			return Fact{placement.Yes, strings.TrimSpace(line), log.At()}
		case strings.Contains(line, "SME"):
			return Fact{placement.No, strings.TrimSpace(line), log.At()}
		default:
			return Fact{placement.AnswerUnknown, strings.TrimSpace(line), log.At()}
		}
	}
	switch {
	case log.Err != nil:
		return Fact{placement.AnswerUnknown, log.Err.Error(), log.At()}
	case log.Cut:
		return Fact{placement.AnswerUnknown, "the log does not reach back to the boot", log.At()}
	}
	return Fact{placement.No, "no line of the kernel's log names encryption of memory", log.At()}
}
