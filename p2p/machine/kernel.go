// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/placement"
)

// Kernel has the facts about a kernel that decide about peer-to-peer.
type Kernel struct {
	// Release is the release that uname prints, "6.12.117+deb12-amd64"; "" if it is not known.
	Release string
	// P2PDMA says whether the kernel is built with CONFIG_PCI_P2PDMA.
	P2PDMA placement.Answer
	// MoveNotify says whether a dynamic importer may map memory without pinning it. Up to 6.12 this
	// needs CONFIG_DMABUF_MOVE_NOTIFY; 7.2 always allows it.
	MoveNotify placement.Answer
	// Source is the file from which the configuration was read, or the reason why it was not read.
	Source string

	Denied bool   // the configuration exists, and this process may not read it
	other  string // the release that the machine runs, if Source.Release is another one

	running string // the release that was read; "" if none was read, or two different ones
	// releasedAt is the file that has the release; "" if none was read.
	releasedAt string
	Version    Version // zero if the release could not be understood
}

// Version is a kernel series.
type Version struct{ Major, Minor int }

// Series of the kernel in whose source the rules were read.
var (
	V6_1  = Version{6, 1}
	V6_12 = Version{6, 12}
	V7_2  = Version{7, 2}
	V7_3  = Version{7, 3}
)

// Known reports whether v is not the zero Version.
func (v Version) Known() bool { return v != Version{} }

// Cmp is negative if v is older than w, 0 if they are equal, and otherwise positive.
func (v Version) Cmp(w Version) int {
	if v.Major != w.Major {
		return v.Major - w.Major
	}
	return v.Minor - w.Minor
}

// String returns the series: "6.12".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// ParseVersion reads the first two numbers of a release; the zero Version if there are none.
func ParseVersion(release string) Version {
	var v Version
	if n, err := fmt.Sscanf(release, "%d.%d", &v.Major, &v.Minor); n != 2 || err != nil || v.Major < 1 || v.Minor < 0 {
		return Version{}
	}
	return v
}

// Newest is the last kernel series whose source was read. The tables do not cover later series.
var Newest = V7_3

// UnreadYet reports whether the kernel is of a later series than Newest.
func (k Kernel) UnreadYet() bool { return k.Version.Cmp(Newest) > 0 }

// Between says whether the kernel has a behaviour that the series first has and the series last lacks.
// It is No up to last, Yes from first on, and unknown for the series between the two, whose source was
// not read. It is also unknown for a kernel up to last with backports, for one later than Newest, and
// for a version that is not known.
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

// plainReleases matches the releases of kernels that have only a stable release and its
// fixes. Each distribution has its own form of names: kernel.org,
// Debian (also backports, cloud and rt), Ubuntu's mainline builds, Arch, Fedora.
var plainReleases = regexp.MustCompile(`^\d+\.\d+(\.\d+)?(` +
	`(-rc\d+)?\+?|` +
	`(-\d+|[+-](deb\d+|bpo)[\w.+]*(-\d+)?)?(-cloud|-rt)?-(amd64|arm64|arm64-16k|686|686-pae|armmp|ppc64el|riscv64|s390x)(-unsigned)?|` +
	`-0\d{5}(rc\d+)?-generic|` +
	`[.-]arch\d+-\d+|-\d+-lts|` +
	`-(0\.rc\d+[\w.]*\.)?\d+\.fc\d+\.\w+` +
	`)$`)

// Backports reports whether the kernel may have code of later versions. The kernels of RHEL and SLES
// have much of it. A release whose name does not have the form of a known distribution without
// backports may have some, too.
func (k Kernel) Backports() bool { return !plainReleases.MatchString(k.Release) }

// rebased matches kernels with much IOMMU code of a later version than their name says: those
// of RHEL 9 and SLES 15.
var rebased = regexp.MustCompile(`\.el9|-150[4-9]00`)

// IOMMUHasDMAOps says whether get_dma_ops() returns a table for a device whose IOMMU translates. From
// Linux 6.12 on it returns NULL, because the kernel calls the IOMMU's code directly (b5c58b2fdc42).
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

// Options of the kernel's configuration that the rules use.
const (
	ConfigP2PDMA     = "CONFIG_PCI_P2PDMA"
	ConfigMoveNotify = "CONFIG_DMABUF_MOVE_NOTIFY"
	ConfigDMABuf     = "CONFIG_DMA_SHARED_BUFFER"
	ConfigHSAP2P     = "CONFIG_HSA_AMD_P2P"
	ConfigODP        = "CONFIG_INFINIBAND_ON_DEMAND_PAGING"
)

// configOptions are the options that rules and checks read, besides those of drivers.
var configOptions = []string{
	ConfigP2PDMA, ConfigMoveNotify, ConfigDMABuf, ConfigHSAP2P, ConfigODP, "CONFIG_PCI", "CONFIG_HAS_IOMEM", "CONFIG_HAS_DMA",
	"CONFIG_INFINIBAND_USER_ACCESS", "CONFIG_VFIO_PCI_DMABUF", "CONFIG_SYNC_FILE", "CONFIG_DEBUG_INFO_BTF",
}

// ReadsOption reports whether a rule or a check reads an option of the kernel's configuration.
func ReadsOption(option string) bool {
	if slices.Contains(configOptions, option) {
		return true
	}
	for _, of := range builtOptions {
		if of == option {
			return true
		}
	}
	return false
}

func readKernel(root string, proc procfs.FS, release, given string) (Kernel, Config) {
	k := Kernel{Release: release}
	running, at := readRelease(proc)
	k.Release, k.releasedAt = cmp.Or(release, running), at
	k.running = running
	switch {
	case running != "" && k.Release != running:
		k.other = running
	case running == "" && at != "" && release != "": // two files name two kernels
		k.other = "another kernel"
	}
	k.Version = ParseVersion(k.Release)
	places := configPlaces(root, k.Release)
	if k.other == "" {
		places = append([]string{proc.Path("config.gz")}, places...)
	}
	if given != "" {
		places = []string{given}
	}
	config, where, odd, denied := findConfig(places, k.Version)
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

// readRelease is the release of the kernel that runs, and the file that has it. Some copies have
// /proc/version alone. If the two files name different kernels, there is no release.
func readRelease(proc procfs.FS) (release, at string) {
	text, err := files.ReadFile(proc.Path("sys/kernel/osrelease"))
	whole := err == nil && bytes.HasSuffix(text, []byte("\n")) // the kernel ends it so: without, it was cut
	release, banner := strings.TrimSpace(string(text)), readBanner(proc)
	switch {
	case whole && release != "" && banner != "" && banner != release:
		return "", "/proc/version"
	case whole && release != "":
		return release, osrelease
	case banner != "":
		return banner, "/proc/version"
	}
	return "", ""
}

// readBanner is the release in /proc/version: "Linux version 6.8.0-60-generic (buildd@…".
func readBanner(proc procfs.FS) string {
	text, err := files.ReadFile(proc.Path("version"))
	rest, ok := strings.CutPrefix(string(text), "Linux version ")
	if words := strings.Fields(rest); err == nil && ok && len(words) > 1 { // one word may have been cut
		return words[0]
	}
	return ""
}

// Config has the options of a kernel's configuration file that rules and checks read (ReadsOption). The value is
// "y", "m" or a text; it is "n" for an option that the file lists as not set.
type Config map[string]string

// Answer says whether an option is set, to y or to m. It is unknown if the configuration does not list
// the option, and is an excerpt or was cut.
func (c Config) Answer(option string) placement.Answer {
	switch c[option] {
	case "y", "m":
		return placement.Yes
	}
	if _, there := c[option]; there || c.whole() {
		return placement.No
	}
	return placement.AnswerUnknown // an excerpt, or a file that was cut
}

// whole reports a file that has the options of the directory lib, which the kernel's build writes after
// those of drivers. The build writes every option that could be set.
func (c Config) whole() bool {
	return c["CONFIG_HAS_IOMEM"] != "" || c["CONFIG_HAS_DMA"] != ""
}

// moveNotify reads the option from a configuration. Later kernels no longer have the
// option, because they always behave so. If the line is missing for a kernel that has the
// option, the file is without the lines of options that are not set: the answer is No.
func (c Config) moveNotify(k Kernel) placement.Answer {
	_, there := c[ConfigMoveNotify]
	switch {
	case there || c[ConfigDMABuf] != "y" || !c.whole():
		return c.Answer(ConfigMoveNotify)
	case k.Version.Known() && k.Version.Cmp(V6_12) <= 0 && !k.Backports():
		return placement.No
	}
	return k.Between(V6_12, V7_2) // the option was removed between the two
}

// configPlaces lists the files in which distributions put the configuration of a release.
// The running kernel may also show its own in procfs.
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

// configOf matches the head of a configuration. Only the series is compared: a distribution's release need not repeat the rest.
var configOf = regexp.MustCompile(`(?m)^# Linux/\S+ (\d+\.\d+\S*) Kernel Configuration`)

// findConfig reads the first kernel configuration in the list. A file that is not a kernel's
// configuration counts as missing; odd says why the first such file was not used.
// denied says that this user may not read one of the files.
func findConfig(places []string, version Version) (c Config, where, odd string, denied bool) {
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
		if of := configOf.FindSubmatch(text); of != nil && version.Known() && ParseVersion(string(of[1])) != version {
			odd = cmp.Or(odd, fmt.Sprintf("%s is the configuration of Linux %s", place, of[1]))
			continue
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

// ConfigLimit is the greatest size of a kernel's configuration in bytes. A file that is larger is not used, and its
// options are unknown.
const ConfigLimit = 4 << 20

func gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, ConfigLimit+1))
	if err == nil && len(plain) > ConfigLimit {
		err = errors.New("too large")
	}
	return plain, err
}

func parseConfig(text []byte) Config {
	c := Config{}
	for raw := range bytes.Lines(text) {
		line := string(bytes.TrimSpace(raw)) // a part of the whole text would keep that in memory
		if rest, ok := strings.CutPrefix(line, "# "); ok {
			if option, ok := strings.CutSuffix(rest, " is not set"); ok && ReadsOption(option) {
				c[option] = "n"
			}
		} else if option, value, ok := strings.Cut(line, "="); ok && ReadsOption(option) {
			c[option] = value
		}
	}
	return c
}

// NewestKernel returns a kernel of the series Newest, without backports, built with peer-to-peer DMA.
func NewestKernel() Kernel {
	return Kernel{Release: Newest.String() + ".0", P2PDMA: placement.Yes, MoveNotify: placement.Yes, Version: Newest}
}
