// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/placement"
)

// Kernel is what a kernel can do for peer-to-peer.
type Kernel struct {
	// Release is that of uname, "6.12.117+deb12-amd64"; "" if it is not known.
	Release string
	// P2PDMA: built with CONFIG_PCI_P2PDMA.
	P2PDMA placement.Answer
	// MoveNotify: a dynamic importer does not pin what it maps. Up to 6.12
	// that is CONFIG_DMABUF_MOVE_NOTIFY; 7.2 always does so.
	MoveNotify placement.Answer
	// Source is where the configuration was read, or why it was not.
	Source string

	Denied  bool    // the configuration is there, and may not be read
	other   string  // the release that runs there, if another one was given
	Version Version // zero if the release could not be understood
}

// Version is a kernel series.
type Version struct{ Major, Minor int }

// The series whose source these rules were read in.
var (
	V6_1  = Version{6, 1}
	V6_12 = Version{6, 12}
	V7_2  = Version{7, 2}
	V7_3  = Version{7, 3}
)

// Known reports a release that was understood.
func (v Version) Known() bool { return v != Version{} }

// Cmp is negative for an older one.
func (v Version) Cmp(w Version) int {
	if v.Major != w.Major {
		return v.Major - w.Major
	}
	return v.Minor - w.Minor
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// ParseVersion reads the first two numbers of a release; zero if there are none.
func ParseVersion(release string) Version {
	var v Version
	if n, err := fmt.Sscanf(release, "%d.%d", &v.Major, &v.Minor); n != 2 || err != nil || v.Major < 1 || v.Minor < 0 {
		return Version{}
	}
	return v
}

// Newest is the last series that was read: of later ones the tables say nothing.
var Newest = V7_3

// UnreadYet reports a kernel later than all that were read.
func (k Kernel) UnreadYet() bool { return k.Version.Cmp(Newest) > 0 }

// Between is the rule for what one series does not do and a later one does: No
// up to the one, Yes from the other, and unknown for those that nobody read. A
// kernel with backports may have it earlier.
func (k Kernel) Between(last, first Version) placement.Answer {
	switch {
	case !k.Version.Known() || k.UnreadYet():
		return placement.AnswerUnknown
	case k.Version.Cmp(first) >= 0:
		return placement.Yes
	case k.Version.Cmp(last) <= 0 && !k.Backports():
		return placement.No
	}
	return placement.AnswerUnknown
}

// plainReleases are those of kernels that are what their version says: a stable
// release and its fixes. Distributions name theirs in their own ways: kernel.org,
// Debian (also backports, cloud and rt), Ubuntu's mainline builds, Arch, Fedora.
var plainReleases = regexp.MustCompile(`^\d+\.\d+(\.\d+)?(` +
	`(-rc\d+)?\+?|` +
	`(-\d+|[+-](deb\d+|bpo)[\w.+]*(-\d+)?)?(-cloud|-rt)?-(amd64|arm64|arm64-16k|686|686-pae|armmp|ppc64el|riscv64|s390x)(-unsigned)?|` +
	`-0\d{5}(rc\d+)?-generic|` +
	`[.-]arch\d+-\d+|-\d+-lts|` +
	`-(0\.rc\d+[\w.]*\.)?\d+\.fc\d+\.\w+` +
	`)$`)

// Backports reports a kernel whose version may say little about its contents:
// RHEL's and SLES's take much from later ones, and of one with a name that is
// not known here it cannot be ruled out.
func (k Kernel) Backports() bool { return !plainReleases.MatchString(k.Release) }

// rebased are kernels whose name has an older version than much of their IOMMU code: RHEL 9's
// and SLES 15's.
var rebased = regexp.MustCompile(`\.el9|-150[4-9]00`)

// IOMMUHasDMAOps reports whether get_dma_ops() answers something for a device whose IOMMU
// translates. Linux 6.12 calls the IOMMU's code directly (b5c58b2fdc42), and answers NULL.
func (k Kernel) IOMMUHasDMAOps() placement.Answer {
	switch {
	case !k.Version.Known() || k.UnreadYet():
		return placement.AnswerUnknown
	case k.Version.Cmp(V6_12) >= 0:
		return placement.No
	case rebased.MatchString(k.Release):
		return placement.AnswerUnknown
	}
	return placement.Yes
}

// Options of the kernel's configuration that rules go by.
const (
	ConfigP2PDMA     = "CONFIG_PCI_P2PDMA"
	ConfigMoveNotify = "CONFIG_DMABUF_MOVE_NOTIFY"
	ConfigDMABuf     = "CONFIG_DMA_SHARED_BUFFER"
	ConfigHSAP2P     = "CONFIG_HSA_AMD_P2P"
	ConfigODP        = "CONFIG_INFINIBAND_ON_DEMAND_PAGING"
)

func readKernel(root string, proc procfs.FS, release, given string) (Kernel, kernelConfig) {
	k := Kernel{Release: release}
	if text, err := files.ReadFile(proc.Path("sys/kernel/osrelease")); err == nil {
		running := strings.TrimSpace(string(text))
		k.Release = cmp.Or(release, running)
		if k.Release != running {
			k.other = running
		}
	}
	k.Version = ParseVersion(k.Release)
	places := configPlaces(root, k.Release)
	if k.other == "" {
		places = append([]string{proc.Path("config.gz")}, places...)
	}
	if given != "" {
		places = []string{given}
	}
	config, where, odd, denied := findConfig(places)
	k.Denied = config == nil && denied
	switch {
	case config != nil:
		k.Source = where
		k.P2PDMA = config.Answer(ConfigP2PDMA)
		k.MoveNotify = config.moveNotify(k)
	case given != "":
		k.Source = cmp.Or(odd, given+" is not the configuration of a kernel")
	case k.other != "":
		k.Source = cmp.Or(odd, "no configuration was found") + ", and the symbols are those of " + k.other
	default:
		k.P2PDMA, k.Source = probeSymbols(proc, cmp.Or(odd, "no configuration was found"))
	}
	if k.MoveNotify == placement.AnswerUnknown && k.Between(V6_12, V7_2) == placement.Yes {
		k.MoveNotify = placement.Yes
	}
	return k, config
}

// kernelConfig has the lines of a kernel's configuration file: "y", "m", or a
// text; "n" for what is there and not set.
type kernelConfig map[string]string

func (c kernelConfig) Answer(option string) placement.Answer {
	switch c[option] {
	case "y", "m":
		return placement.Yes
	}
	// A file of the kernel's own has every option that could have been set.
	return placement.No
}

// moveNotify knows that the option is gone from kernels that always do so. In
// the configuration of one that has it a missing line is one that was taken out,
// as is done with those that are not set.
func (c kernelConfig) moveNotify(k Kernel) placement.Answer {
	_, there := c[ConfigMoveNotify]
	switch {
	case there || c[ConfigDMABuf] != "y":
		return c.Answer(ConfigMoveNotify)
	case k.Version.Known() && k.Version.Cmp(V6_12) <= 0 && !k.Backports():
		return placement.No
	}
	return k.Between(V6_12, V7_2) // in between somebody took it away
}

// configPlaces is where distributions put the configuration of a release. The
// kernel that runs may have its own in procfs.
func configPlaces(root, release string) []string {
	var places []string
	if release != "" && !strings.ContainsRune(release, '/') {
		places = append(places,
			filepath.Join(root, "boot", "config-"+release),
			filepath.Join(root, "lib/modules", release, "config"),
			filepath.Join(root, "usr/lib/modules", release, "config"),
			filepath.Join(root, "usr/src", "linux-headers-"+release, ".config"),
			filepath.Join(root, "usr/src/kernels", release, ".config"))
	}
	return places
}

// findConfig reads the first configuration there is. What is not that of a
// kernel counts as missing; odd says so of the first.
// denied says that one is there which this user may not read.
func findConfig(places []string) (c kernelConfig, where, odd string, denied bool) {
	for _, place := range places {
		text, err := files.ReadFile(place)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
				odd = cmp.Or(odd, place+" cannot be read: "+Reading{Err: err}.Why())
				denied = denied || errors.Is(err, fs.ErrPermission)
			}
			continue
		}
		if strings.HasSuffix(place, ".gz") {
			if text, err = gunzip(text); err != nil {
				odd = cmp.Or(odd, place+" cannot be unpacked")
				continue
			}
		}
		if c := parseConfig(text); c["CONFIG_PCI"] != "" {
			return c, place, "", false
		}
		if len(bytes.TrimSpace(text)) == 0 {
			odd = cmp.Or(odd, place+" is empty")
		}
		odd = cmp.Or(odd, place+" is not the configuration of a kernel")
	}
	return nil, "", odd, denied
}

// configLimit is more than any configuration has.
const configLimit = 16 << 20

func gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, configLimit))
}

func parseConfig(text []byte) kernelConfig {
	c := kernelConfig{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# "); ok {
			if option, ok := strings.CutSuffix(rest, " is not set"); ok {
				c[option] = "n"
			}
		} else if option, value, ok := strings.Cut(line, "="); ok && strings.HasPrefix(option, "CONFIG_") {
			c[option] = value
		}
	}
	return c
}

// probeSymbols looks for the decision's function among the kernel's symbols.
func probeSymbols(proc procfs.FS, missing string) (p2pdma placement.Answer, source string) {
	name := proc.Path("kallsyms")
	if strings.HasPrefix(name, noFiles+"/") {
		return placement.AnswerUnknown, missing + ", and no procfs was given: add --proc DIR"
	}
	answer, err := HasSymbol(proc, "pci_p2pdma_distance_many", "pci_enable_device")
	switch {
	case errors.Is(err, fs.ErrNotExist): // in a copy it is not this machine's that is missing
		return answer, missing + ", and no list of the kernel's symbols"
	case err != nil:
		return answer, missing + ", and symbols cannot be read: " + err.Error()
	case answer == placement.AnswerUnknown:
		return answer, missing + ", and " + name + " does not have the kernel's symbols"
	}
	return answer, name
}

// HasSymbol asks for one of the kernel's symbols. Its absence says something only
// where its neighbour, which every such kernel has, is there.
func HasSymbol(proc procfs.FS, symbol, neighbour string) (placement.Answer, error) {
	f, err := files.Open(proc.Path("kallsyms"))
	if err != nil {
		return placement.AnswerUnknown, err
	}
	defer f.Close()
	answer := placement.AnswerUnknown
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		switch string(symbolOf(lines.Bytes())) {
		case symbol:
			return placement.Yes, nil
		case neighbour:
			answer = placement.No
		}
	}
	if err := lines.Err(); err != nil {
		return placement.AnswerUnknown, err
	}
	return answer, nil
}

// symbolOf is the name in "ffffffff81000000 T name" and "… t name\t[module]".
func symbolOf(line []byte) []byte {
	_, kind, _ := bytes.Cut(line, []byte{' '})
	_, name, _ := bytes.Cut(kind, []byte{' '})
	name, _, _ = bytes.Cut(name, []byte{'\t'})
	return name
}

// CPU is what the kernel's rule for processors goes by.
type CPU struct {
	Vendor string // "AuthenticAMD"; "" on all but x86
	Family int
	Known  bool
}

// zen is the first family of AMD processors whose host bridges all let
// peer-to-peer pass.
const zen = 0x17

// Routes is the kernel's cpu_supports_p2pdma().
func (c CPU) Routes() placement.Answer {
	switch {
	case !c.Known:
		return placement.AnswerUnknown
	case c.Vendor == "AuthenticAMD" && c.Family >= zen:
		return placement.Yes
	}
	return placement.No
}

// PassThrough is the kernel's parameter for an IOMMU that does not translate, as
// it is on x86. Checks name that one; what is said of a machine has its own.
const PassThrough = "iommu=pt"

// PassThrough is the kernel's parameter for an IOMMU that does not translate.
func (c CPU) PassThrough() string {
	if c.Known && c.Vendor == "" {
		return "iommu.passthrough=1"
	}
	return PassThrough
}

func (c CPU) String() string {
	switch {
	case c.Vendor == "" && !c.Known:
		return "a processor that is not known"
	case c.Vendor == "":
		return "a processor other than x86"
	}
	return fmt.Sprintf("%s family %#x", c.Vendor, c.Family)
}

// readCPU reads the first processor, which is the one that the kernel asks.
func readCPU(proc procfs.FS) CPU {
	text, err := files.ReadFile(proc.Path("cpuinfo"))
	if err != nil {
		return CPU{}
	}
	var c CPU
	other := false
	// Any vendor but one needs no family.
	known := func(family bool) CPU {
		c.Known = family || c.Vendor != "AuthenticAMD"
		return c
	}
	family := false
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok && c.Vendor != "": // the blank line behind the first
			return known(family)
		case key == "vendor_id":
			c.Vendor = value
		case key == "cpu family":
			n, err := strconv.Atoi(value)
			c.Family, family = n, err == nil
		case key == "CPU implementer" || key == "isa" || key == "cpu" && strings.HasPrefix(value, "POWER"):
			other = true
		}
	}
	if c.Vendor != "" {
		return known(family)
	}
	return CPU{Known: other}
}

// NewestKernel is a plain kernel of the last series that was read, built with peer-to-peer DMA.
func NewestKernel() Kernel {
	return Kernel{Release: Newest.String() + ".0", P2PDMA: placement.Yes, MoveNotify: placement.Yes, Version: Newest}
}

// Arch is the machine's architecture in Go's words, as far as /proc/cpuinfo tells it: "amd64",
// "arm64", "ppc64le"; "" if it does not.
func (m *Machine) Arch() string {
	cpu := m.Read("proc/cpuinfo")
	_, arm := cpu.Line("CPU implementer")
	name, _ := cpu.Line("cpu\t")
	switch {
	case m.CPU.Vendor != "":
		return "amd64"
	case arm:
		return "arm64"
	case strings.HasPrefix(name, "POWER"):
		return "ppc64le"
	}
	return ""
}
