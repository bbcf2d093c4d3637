// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
)

// pattern is a line of the kernel's log that says something of peer-to-peer.
type pattern struct {
	check  string // whose finding it is
	match  *regexp.Regexp
	result Result
	means  string
}

// patterns are what the kernel and its drivers print.
var patterns = []pattern{
	{"KRN-KMSG", regexp.MustCompile(`ACS redirect is set between the client and provider`), ResultWarn, "a port on the way redirects to the root"},
	{"KRN-KMSG", regexp.MustCompile(`to disable ACS redirect for this path, add the kernel parameter: (pci=\S+)`), ResultWarn, "the kernel names the ports"},
	{"KRN-KMSG", regexp.MustCompile(`Host bridge not in P2PDMA whitelist`), ResultWarn, "the kernel does not trust the host bridge"},
	{"KRN-KMSG", regexp.MustCompile(`cannot be used for peer-to-peer DMA as the client and provider`), ResultFail, "the kernel refused a pair"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: .*importer unable to handle MMIO`), ResultFail, "the importer wants pages"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: .*topology not supported for mapping type FORCE_PCIE`), ResultFail, "NVIDIA's gate refused a mapping for PCIe: the GPU is not coherent, or the IOMMU groups differ"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: .*dma-buf attach failed`), ResultFail, "NVIDIA's gate refused an importer"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: Xid \(PCI:([0-9a-f:]+)\): 79,`), ResultFail, "the GPU has fallen off the bus"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: Xid \(PCI:([0-9a-f:]+)\): [0-9]+,`), ResultWarn, "NVIDIA's driver reports an error of a GPU, or of a program on it"},
	{"KRN-KMSG", regexp.MustCompile(`PCIe P2P access from peer device \S+ is not supported by the chipset`), ResultWarn, "amdgpu: two GPUs do not reach each other"},
	{"ISO-FAULTS", regexp.MustCompile(`DMAR: \[DMA (Write|Read)[^\]]*\] Request device \[([^\]]+)\]`), ResultFail, "the IOMMU blocked a transfer"},
	{"ISO-FAULTS", regexp.MustCompile(`AMD-Vi: Event logged \[IO_PAGE_FAULT`), ResultFail, "the IOMMU blocked a transfer"},
	// F_TRANSLATION, F_ADDR_SIZE, F_ACCESS and F_PERMISSION, by number up to
	// some 6.x, by name since.
	{"ISO-FAULTS", regexp.MustCompile(`arm-smmu-v3 .*event 0x1[0-3]\b`), ResultFail, "the IOMMU blocked a transfer"},
	{"ISO-FAULTS", regexp.MustCompile(`arm-smmu-v3 .*event: F_\w+ client: \S+`), ResultFail, "the IOMMU blocked a transfer"},
	{"NV-PEERMEM-KMSG", regexp.MustCompile(`nvidia_peermem.*detected invalid context`), ResultWarn, "a context that is gone was used"},
	{"PCIE-AER", regexp.MustCompile(`AER: .*error|PCIe Bus Error`), ResultWarn, "a link had errors"},
	{"PCIE-LINK", regexp.MustCompile(`available PCIe bandwidth, limited by`), ResultWarn, "a link is narrower than the device could use"},
	{"PCIE-BAR-ASSIGNED", regexp.MustCompile(`BAR \d+.*(can't assign; no space|failed to assign)`), ResultFail, "a BAR found no room"},
}

// command is the kernel's own proposal, if the line has one.
func (p pattern) command(line string) string {
	if m := p.match.FindStringSubmatch(line); len(m) == 2 && strings.HasPrefix(m[1], "pci=") {
		return m[1]
	}
	return ""
}

// Loggable reports a line of the kernel's log that a check looks for.
func Loggable(line string) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool { return p.match.MatchString(line) })
}

// kernelLog is what the kernel has said since it started, or what is left of
// that.
type kernelLog struct {
	where string
	lines []string
	cut   bool // the beginning was overwritten
	err   error
}

func (k *kernelLog) at() []string { return []string{k.where} }

// quiet reports a log without a line that is looked for. What was overwritten
// may have had one.
func (l *look) quiet(log *kernelLog, read string) {
	if log.cut {
		l.unknown("", log.at(), "%s; older lines are overwritten", read).aside().
			fix("look through the journal, or give the kernel a larger log and look after the next start", "journalctl -k --grep 'DMAR|AMD-Vi|arm-smmu|P2PDMA|NVRM'", "")
		return
	}
	l.pass("", log.at(), "%s", read)
}

// faultAddress is what a fault says of where it was: DMAR's, AMD's, SMMU's.
var faultAddress = regexp.MustCompile(`(?:fault addr |address=|iova: )(0x[0-9a-f]+)`)

// faultedIn says whose BAR a fault's address is in.
func (l *look) faultedIn(line string) string {
	m := faultAddress.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	at, err := strconv.ParseUint(m[1], 0, 64)
	if err != nil {
		return ""
	}
	for _, f := range l.endpoints() {
		for _, bar := range f.BARs {
			if at >= bar.Start && at-bar.Start < bar.Size {
				return fmt.Sprintf("; the address is in BAR %d of %s", bar.Index, f.name)
			}
		}
	}
	return ""
}

// hit is a line that a pattern matches.
type hit struct {
	line    string
	pattern pattern
}

// shownLines is of how many lines a check tells.
const shownLines = 3

var pciAddress = regexp.MustCompile(`(?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]`)

// xidDevice is how NVIDIA's driver writes a GPU: without a function.
var xidDevice = regexp.MustCompile(`NVRM: Xid \(PCI:([0-9a-f:]+)\)`)

// of are a check's lines, the latest of each pattern, if they name a device that
// matters or none at all.
func (k *kernelLog) of(l *look, check string) []hit {
	var out []hit
	seen := map[*regexp.Regexp]bool{}
	for _, line := range slices.Backward(k.lines) {
		for _, p := range patterns {
			if p.check != check || !p.match.MatchString(line) || !l.concerns(line) {
				continue
			}
			if !seen[p.match] {
				seen[p.match] = true
				out = append(out, hit{line, p})
			}
			break // a line says one thing
		}
		if len(out) == shownLines {
			break
		}
	}
	return out
}

// concerns reports a line on no PCI function, or on one of those looked at.
func (l *look) concerns(line string) bool {
	names := pciAddress.FindAllString(line, -1)
	if m := xidDevice.FindStringSubmatch(line); m != nil {
		names = append(names, m[1]+".0")
	}
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		a, err := ParseAddr(name)
		return err == nil && l.matter()[a]
	})
}

// matter are the functions looked at. A log can have a line for each of
// thousands of errors, so they are gathered once.
func (l *look) matter() map[Addr]bool {
	return once(l, "functions that matter", func() map[Addr]bool {
		out := map[Addr]bool{}
		for _, f := range l.all() {
			out[f.PCI] = true
		}
		// Of a host bridge the kernel names the function that stands for it.
		for _, f := range l.endpoints() {
			if f.err != nil {
				continue
			}
			h := l.m.hostOf(l.m.node(f.PCI))
			if h.err == nil && !h.empty {
				out[h.first.Addr] = true
			}
		}
		return out
	})
}

func (l *look) log() *kernelLog {
	return once(l, "kernel log", l.m.kernelLog)
}

// kernelLog reads the log where it is. This machine's kernel can also be asked.
func (m *Machine) kernelLog() *kernelLog {
	name, where, anchor := m.place("dev/kmsg")
	k := readLog(name)
	k.where, k.err = where, absent(k.err, anchor)
	if m.root == noFiles {
		k.err = errNoLog
	}
	if k.err != nil && m.root == "/" {
		// Without the file, what is said of it tells nothing.
		if asked := askLog(); asked.err == nil || errors.Is(k.err, fs.ErrNotExist) {
			return asked
		}
	}
	return k
}

// logLimit is more than the kernel keeps.
const logLimit = 16 << 20

// ReadLog reads the kernel's log, a line each. cut says that its beginning was
// overwritten.
func (m *Machine) ReadLog() (lines []string, cut bool, err error) {
	k := m.kernelLog()
	return k.lines, k.cut, k.err
}

// readLog reads /dev/kmsg, a record each time, or a copy of it.
func readLog(name string) *kernelLog {
	k := &kernelLog{}
	fd, err := openLog(name)
	if err != nil {
		k.err = err
		return k
	}
	defer unix.Close(fd)
	records, cut, err := drain(fd, name)
	k.cut, k.err = cut, err
	if err != nil {
		return k
	}
	for i, r := range records {
		if i == 0 && r.number != "0" {
			k.cut = true
		}
		k.lines = append(k.lines, r.text)
	}
	if len(k.lines) == 0 {
		k.err = errNoRecord
	}
	return k
}

func openLog(name string) (fd int, err error) {
	if err := files.Asked("open", name); err != nil {
		return -1, err
	}
	fd, err = unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// record is one message of the log.
type record struct{ number, text string }

// drain reads what there is. cut says that some was overwritten before.
func drain(fd int, name string) (out []record, cut bool, err error) {
	var all strings.Builder
	buf := make([]byte, 64<<10)
	for all.Len() < logLimit {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EPIPE): // overwritten meanwhile: go on with the oldest there is
			cut = true
			continue
		case errors.Is(err, unix.EAGAIN):
			err = io.EOF
		case err == nil && n == 0:
			err = io.EOF
		case errors.Is(err, unix.EINTR):
			continue
		}
		if n > 0 {
			all.Write(buf[:n])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, cut, &os.PathError{Op: "read", Path: name, Err: err}
		}
	}
	for line := range strings.Lines(all.String()) {
		head, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ";")
		fields := strings.Split(head, ",")
		if !ok || len(fields) < 3 || strings.HasPrefix(line, " ") {
			continue // properties of the record above
		}
		out = append(out, record{fields[1], text})
	}
	return out, cut, nil
}

// errNoLog is of a sysfs and a procfs that were named one by one.
var errNoLog = fmt.Errorf("%w: a sysfs and a procfs have no log; --root DIR takes it from DIR/dev/kmsg", errNotCopied)

// errNoRecord is of what is no log: a kernel that runs has said something.
var errNoRecord = errors.New("it has no record")
