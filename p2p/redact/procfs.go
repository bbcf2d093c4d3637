// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/gpurdma/gpurdma/p2p/check/hostcheck"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/variables"
)

// Rules of files of procfs, and of what stands beside the kernel.
var (
	release = &Rule{"the release; words that no distribution uses are replaced", func(r *Redactor, data []byte) []byte {
		if !aRelease.Match(data) {
			return r.other(data)
		}
		return []byte(r.release(string(data)))
	}}

	processor = &Rule{"of the first processor: vendor_id, cpu family, model, the architecture, and the flags of virtual machines", firstProcessor}

	parameters = &Rule{"parameters that concern peer-to-peer; other words in their values are replaced", func(r *Redactor, data []byte) []byte {
		body := string(data)
		if strings.ContainsFunc(strings.TrimRight(body, "\n"), unicode.IsControl) {
			return []byte("\x01" + none + "\n") // neither this nor the original is a command line
		}
		var out []string
		for _, word := range strings.Fields(body) {
			if word == "--" || hostcheck.Parameter(strings.Trim(word, `"`)) {
				out = append(out, r.parameter(word))
			}
		}
		if len(out) == 0 && strings.TrimSpace(body) == "" {
			return data
		}
		return []byte(strings.Join(out, " ") + "\n")
	}}

	options  = &Rule{"the options that a check reads, and the release in the head", (*Redactor).options}
	packed   = &Rule{"the options that a check reads, and the release in the head", packedOptions}
	builtIn  = byLine("the names of drivers", builtInDriver)
	symbols  = &Rule{"five names of functions, without their addresses", kernelFunctions}
	privs    = each("CapEff and CapBnd", expression(`^Cap(?:Eff|Bnd):\s*[0-9a-f]{1,16}$`))
	limits   = each("locked memory", expression(`^Max locked memory +(?:unlimited|\d{1,20}) +(?:unlimited|\d{1,20}) +bytes *$`))
	libfab   = byLine("the version", func(_ *Redactor, line string) (string, bool) { return field(line, "Version", aPackage) })
	groups   = byLine("how deep the group is, and the names of container runtimes", func(_ *Redactor, line string) (string, bool) { return Group(line) })
	mounted  = &Rule{"mounts over /proc, /sys and /dev/shm, without what is mounted", mounts}
	environ  = &Rule{"variables of the libraries that p2pcheck knows; words in their values that no library knows are replaced", environment}
	aPackage = expression(`^\d{1,4}(?:\.\d{1,4}){0,2}(?:(?:amzn|rc|a|b)\d{1,4}(?:\.\d{1,4}){0,3})?$`)
)

// aPower matches the name of a processor of POWER.
var aPower = expression(`^POWER\d{1,2}`)

// flags are those of the first processor that are kept. The others say what programs can use.
var flags = []string{"fpu", "lm", "hypervisor", "tdx_guest"}

func firstProcessor(_ *Redactor, data []byte) []byte {
	first, _, more := bytes.Cut(data, []byte("\n\n"))
	if more {
		first = append(slices.Clip(first), '\n')
	}
	var out []byte
	for line := range strings.Lines(string(first)) {
		body, whole := strings.CutSuffix(line, "\n")
		key, value, ok := strings.Cut(body, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "vendor_id":
			ok = ok && words.has(value)
		case "cpu family", "model", "CPU implementer", "CPU part", "CPU architecture", "processor":
			ok = ok && aNumber.MatchString(value)
		case "cpu": // of POWER
			if power := aPower.FindString(value); power != "" {
				body = key + ": " + power
			}
		case "isa":
			body = key + ": rv64"
		case "flags":
			// White space stays as it is: a line that was cut shows by it.
			before, after, _ := strings.Cut(body, ":")
			body = before + ":" + aWord.ReplaceAllStringFunc(after, func(flag string) string {
				if slices.Contains(flags, flag) {
					return flag
				}
				return "x"
			})
			ok = true
		default:
			continue
		}
		if !ok {
			body = key + ": " + none
		}
		out = append(out, body...)
		if whole {
			out = append(out, '\n')
		}
	}
	if more {
		out = append(out, '\n')
	}
	return out
}

// aRelease matches the release of a kernel.
var aRelease = expression(`^[1-9]\.\d{1,3}(?:\.\d{1,4}){0,2}(?:[-+.~_][0-9A-Za-z_+.~-]*)?\n?$`)

// parameter is a word of the kernel's command line.
func (r *Redactor) parameter(word string) string {
	key, value, ok := strings.Cut(word, "=")
	if !ok {
		return word
	}
	if r.manyNumbers(value) {
		return key + "=" + r.whole(value, r.name(ofWord, value))
	}
	return key + "=" + text(value, func(token string) string {
		if aBits.MatchString(token) || anotherID.MatchString(token) {
			return token
		}
		return r.value(token)
	})
}

var (
	aBits     = expression(`^[01x]{1,16}$`)      // config_acs=
	anotherID = expression(`^!?[0-9a-fA-F]{4}$`) // force_probe=, disable_acs_redir=pci:
)

// kernelHead matches the head of a configuration.
var kernelHead = expression(`^# Linux/(x86|x86_64|i386|arm64|arm|powerpc|riscv|s390|loongarch|mips|sparc) (\S+) Kernel Configuration$`)

// options are the lines of a kernel's configuration that a check reads.
func (r *Redactor) options(data []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(data)) {
		body := strings.TrimSpace(line)
		option, _, _ := strings.Cut(strings.TrimPrefix(body, "# "), " ")
		switch m := kernelHead.FindStringSubmatch(body); {
		case m != nil:
			body = "# Linux/" + m[1] + " " + r.release(m[2]) + " Kernel Configuration"
		case body == "# "+option+" is not set" && machine.ReadsOption(option):
		default:
			var value string
			if option, value, _ = strings.Cut(body, "="); !machine.ReadsOption(option) {
				continue
			}
			if value != "y" && value != "m" && value != "n" {
				body = option + "=" + none
			}
		}
		out.WriteString(body + "\n")
	}
	if out.Len() == 0 && len(bytes.TrimSpace(data)) > 0 {
		return []byte(none + "\n") // neither this nor the original is a configuration
	}
	return out.Bytes()
}

func packedOptions(r *Redactor, data []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return []byte(none)
	}
	plain, err := io.ReadAll(io.LimitReader(z, machine.ConfigLimit+1))
	if err != nil || len(plain) > machine.ConfigLimit {
		return []byte(none)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(r.options(plain)) // to memory
	_ = w.Close()
	return out.Bytes()
}

func builtInDriver(r *Redactor, line string) (string, bool) {
	name, ok := strings.CutSuffix(path.Base(strings.TrimSpace(line)), ".ko")
	switch known := r.names[name]; {
	case !ok:
		return "", false
	case known != "":
		name = known
	case !common(ofModule, name):
		return "", false
	}
	return "kernel/" + name + ".ko", true
}

// kernelSymbols are the functions that a check looks for.
var kernelSymbols = []string{"pci_p2pdma_distance_many", "pci_enable_device", "_etext", "ib_register_peer_memory_client", "ib_register_device"}

func kernelFunctions(r *Redactor, data []byte) []byte {
	out, _ := r.Symbols(bytes.NewReader(data)) // a line that is too long ends it
	return out
}

// Symbols returns the lines of /proc/kallsyms with the functions that a check looks for. It reads the file line by
// line, because the file is long.
func (r *Redactor) Symbols(kallsyms io.Reader) ([]byte, error) {
	var out []byte
	after := false
	lines := bufio.NewScanner(kallsyms)
	for lines.Scan() {
		var kept string
		if kept, after = r.symbol(lines.Bytes(), after); kept != "" {
			out = append(append(out, kept...), '\n')
		}
	}
	return out, lines.Err()
}

// symbol is what is kept of a line of /proc/kallsyms. after says that the line before was kept and is a module's: the line behind
// it shows that the module's symbols have not been cut.
func (r *Redactor) symbol(line []byte, after bool) (kept string, module bool) {
	f := bytes.Fields(line)
	if len(f) < 3 {
		return "", false
	}
	name, of := string(f[2]), ""
	if len(f) > 3 {
		of = "\t[" + r.name(ofModule, strings.Trim(string(f[3]), "[]")) + "]"
	}
	switch {
	case slices.Contains(kernelSymbols, name):
		return "0000000000000000 T " + name + of, of != ""
	case after:
		return "0000000000000000 t " + none + of, false
	}
	return "", false
}

// fileSystems are types that are kept.
var fileSystems = setOf(`tmpfs devtmpfs proc sysfs cgroup cgroup2 securityfs debugfs tracefs overlay bpf efivarfs pstore configfs mqueue hugetlbfs binfmt_misc autofs fusectl selinuxfs ramfs ext4 xfs btrfs nsfs rpc_pipefs`)

func mounts(r *Redactor, data []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		point := f[4]
		if point != "/dev/shm" && point != "/proc" && point != "/sys" && !strings.HasPrefix(point, "/proc/") && !strings.HasPrefix(point, "/sys/") {
			continue
		}
		var options []string
		for _, option := range strings.Split(g[2], ",") {
			switch {
			case option == "rw" || option == "ro" || aSize.MatchString(option):
				options = append(options, option)
			case strings.HasPrefix(option, "size="):
				options = append(options, "size="+none)
			}
		}
		kind := g[0]
		if !fileSystems.has(kind) {
			kind = none
		}
		fmt.Fprintf(&out, "1 1 0:1 / /%s rw - %s none %s\n", r.Path(strings.TrimPrefix(point, "/")), kind, strings.Join(options, ","))
	}
	if out.Len() == 0 && len(data) > 0 {
		return []byte("1 1 0:1 / / rw - none none rw\n") // there were others
	}
	return []byte(out.String())
}

// environment keeps variables. One of a library that is not known is kept without its name, because it shows that the library is
// used.
func environment(r *Redactor, data []byte) []byte {
	var out []string
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(data), "\x00"), "\x00") {
		name, value, ok := strings.Cut(entry, "=")
		library, _, _ := strings.Cut(name, "_")
		switch {
		case !ok:
		case variables.Known(name):
			out = append(out, name+"="+r.value(value))
		case libraries.has(library):
			out = append(out, library+"_REDACTED=")
		}
	}
	if len(out) == 0 && len(data) > 0 {
		if !bytes.ContainsRune(data, '=') {
			return []byte(none)
		}
		return []byte("REDACTED=\x00")
	}
	return []byte(strings.Join(append(out, ""), "\x00"))
}

var libraries = setOf(`NCCL RCCL UCX FI OFI NVSHMEM MC MOONCAKE MSCCLPP NIXL ROC`)

// containers are words in the names of control groups.
var containers = []string{"docker", "kubepods", "containerd", "libpod", "lxc"}

// Group returns a line of /proc/self/cgroup with another name for the group; false if it is no such line. The name has
// as many levels as the real one, because the groups above have limits, too.
func Group(line string) (string, bool) {
	f := strings.SplitN(line, ":", 3)
	if len(f) != 3 {
		return "", false
	}
	name := hostcheck.SnapshotGroup
	if f[2] == "/" {
		name = "" // it has no name
	}
	for _, word := range containers {
		if strings.Contains(f[2], word) {
			name += "/" + word
		}
	}
	if strings.HasPrefix(f[2], "/..") { // outside of those that this program sees
		name = "../" + name
	}
	for strings.Count(path.Clean("/"+name), "/") < strings.Count(path.Clean("/"+f[2]), "/") {
		name += "/group"
	}
	if !aNumber.MatchString(f[0]) {
		f[0] = "0"
	}
	controllers := strings.Split(f[1], ",")
	for i, c := range controllers {
		if !hierarchies.has(c) && c != "" {
			controllers[i] = none
		}
	}
	return f[0] + ":" + strings.Join(controllers, ",") + ":/" + name, true
}

var hierarchies = setOf(`cpu cpuacct cpuset memory devices freezer net_cls net_prio blkio io perf_event hugetlb pids rdma misc name=systemd`)
