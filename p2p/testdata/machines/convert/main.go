// SPDX-License-Identifier: Apache-2.0

// Command convert prints the tree.txt of a machine whose files lie below a directory.
// It keeps the facts that p2pcheck reads, and no serial number, address or host name.
// To change which facts are kept, change this program.
//
//	go run ./p2p/testdata/machines/convert [-include base] DIRECTORY > NAME/tree.txt
//	go run ./p2p/testdata/machines/convert -nccl TOPOLOGY.xml >> NAME/tree.txt
package main

import (
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	include := flag.String("include", "", "print only what differs from the file `NAME` of common, a list of file lines")
	nccl := flag.Bool("nccl", false, "print the functions of a topology file of NCCL or RCCL")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	c := converter{root: flag.Arg(0)}
	err := error(nil)
	if *nccl {
		err = c.nccl(flag.Arg(0))
	} else {
		err = c.convert(*include)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "convert:", err)
		os.Exit(1)
	}
	os.Stdout.WriteString(c.out.String())
}

// converter writes a tree.txt.
type converter struct {
	root  string
	out   strings.Builder
	ports []string          // lines about RDMA devices
	files map[string]string // texts, by path
	texts map[string]string // links that lead nowhere
	cards map[string]string // names for cards, by the field of their vital product data
}

func (c *converter) line(format string, args ...any) { fmt.Fprintf(&c.out, format+"\n", args...) }

func (c *converter) read(name string) (string, bool) {
	data, err := os.ReadFile(filepath.Join(c.root, name))
	if errors.Is(err, syscall.ELOOP) && !strings.HasPrefix(name, "sys/bus/") && !strings.HasPrefix(name, "sys/devices/") {
		c.texts[name] = path.Base(name) // a snapshot has this for a file that could not be read
	}
	return string(data), err == nil
}

// glob lists names below the root.
func (c *converter) glob(pattern string) []string {
	names, _ := filepath.Glob(filepath.Join(c.root, pattern))
	for i := range names {
		names[i], _ = filepath.Rel(c.root, names[i])
	}
	return names
}

func (c *converter) convert(include string) error {
	c.files, c.texts, c.cards = map[string]string{}, map[string]string{}, map[string]string{}
	if include != "" {
		c.line("include %s", include)
	}
	c.kernel()
	c.cpu()
	c.modules()
	c.nvidia()
	if err := c.functions(); err != nil {
		return err
	}
	for _, line := range c.ports {
		c.line("%s", line)
	}
	c.others()
	return c.print(include)
}

// options are those of the kernel that p2pcheck asks about.
var options = []string{
	"CONFIG_PCI", "CONFIG_PCI_P2PDMA", "CONFIG_DMA_SHARED_BUFFER", "CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_SYNC_FILE",
	"CONFIG_INFINIBAND_ON_DEMAND_PAGING", "CONFIG_INFINIBAND_USER_ACCESS", "CONFIG_HSA_AMD_P2P", "CONFIG_VFIO_PCI_DMABUF",
	"CONFIG_ARM64_64K_PAGES", "CONFIG_ARM64_4K_PAGES",
}

func (c *converter) kernel() {
	release, ok := c.read("proc/sys/kernel/osrelease")
	if !ok {
		if text, isText := c.read("proc/version"); isText {
			if fields := strings.Fields(text); len(fields) > 2 {
				release = fields[2]
			}
		} else if text, isText := c.read("proc/hwloc-nofile-info"); isText {
			release = valueOf(text, "OSRelease:")
		}
	}
	if release = strings.TrimSpace(release); release != "" {
		c.line("release %s", release)
	}
	config := ""
	for _, name := range []string{"boot/config-" + release, "lib/modules/" + release + "/config", "usr/lib/modules/" + release + "/config"} {
		text, ok := c.read(name)
		if !ok {
			continue
		}
		if config = kept(text); name == "boot/config-"+release {
			c.line("config %s", config)
			return
		}
		c.files[name] = configText(config)
		break
	}
	if text, ok := c.unzipped("proc/config.gz"); ok {
		c.line("config %s", kept(text))
		return
	}
	c.line("config -")
}

// unzipped is the text of a file that gzip wrote.
func (c *converter) unzipped(name string) (string, bool) {
	data, ok := c.read(name)
	if !ok {
		return "", false
	}
	r, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		return "", false
	}
	text, err := io.ReadAll(r)
	return string(text), err == nil
}

// kept are the options that are kept, as a config directive has them.
func kept(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if off, is := strings.CutPrefix(line, "# "); is && strings.HasSuffix(off, " is not set") {
			name, value, ok = strings.TrimSuffix(off, " is not set"), "n", true
		}
		if ok && slices.Contains(options, name) {
			out = append(out, name+"="+value)
		}
	}
	return strings.Join(out, " ")
}

func configText(config string) string {
	text := ""
	for _, option := range strings.Fields(config) {
		if name, off := strings.CutSuffix(option, "=n"); off {
			option = "# " + name + " is not set"
		}
		text += option + "\n"
	}
	return text
}

// valueOf is what follows a key at the start of a line.
func valueOf(text, key string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:"))
		}
	}
	return ""
}

// cpu keeps the first processor's kind.
func (c *converter) cpu() {
	text, ok := c.read("proc/cpuinfo")
	if !ok {
		c.line("cpu -")
		return
	}
	first, _, _ := strings.Cut(text, "\n\n")
	line := "cpu"
	for _, k := range [][2]string{{"vendor", "vendor_id"}, {"family", "cpu family"}, {"model", "model\t"}, {"implementer", "CPU implementer"}, {"part", "CPU part"}, {"cpu", "cpu\t"}} {
		if v := valueOf(first, k[1]); v != "" {
			line += " " + k[0] + "=" + strings.ReplaceAll(v, " ", "_")
		}
	}
	var flags []string // that decide
	for _, f := range strings.Fields(valueOf(first, "flags")) {
		if f == "hypervisor" || f == "tdx_guest" {
			flags = append(flags, f)
		}
	}
	if len(flags) > 0 {
		line += " flags=" + strings.Join(flags, ",")
	}
	if line == "cpu" {
		line = "cpu -"
	}
	c.line("%s", line)
}

// modules are those that decide: exporters, importers and what joins them.
var modules = regexp.MustCompile(`^(nvidia.*|nv_peer_mem|gdrdrv|nouveau|amdgpu|amdkfd|xe|i915|habanalabs|ast|mgag200|ib_.*|rdma_.*|mlx4_.*|mlx5_.*|mlx_compat|bnxt_.*|irdma|efa|hfi1|qedr|ionic.*|mana.*|erdma|hns.*|rdma_rxe|siw|cxi.*|vfio.*|bonding|nvgrace.*)$`)

func (c *converter) modules() {
	for _, dir := range c.glob("sys/module/*") {
		name := path.Base(dir)
		if !modules.MatchString(name) {
			continue
		}
		taint, tainted := c.read(dir + "/taint")
		version, _ := c.read(dir + "/version")
		if taint = strings.TrimSpace(taint); taint == "" {
			taint = "-"
		}
		if tainted && name != "nvidia" {
			c.line("%s", strings.TrimSpace(fmt.Sprintf("module %s %s %s", name, taint, strings.TrimSpace(version))))
		}
		for _, param := range c.glob(dir + "/parameters/*") {
			c.keep(param)
		}
	}
}

// nvrm is the first line of /proc/driver/nvidia/version.
var nvrm = regexp.MustCompile(`^NVRM version: +NVIDIA UNIX (Open Kernel Module for (\S+)|(\S+) Kernel Module) +(\S+)`)

func (c *converter) nvidia() {
	text, _ := c.read("proc/driver/nvidia/version")
	m := nvrm.FindStringSubmatch(text)
	switch {
	case m == nil && text != "":
		c.keep("proc/driver/nvidia/version")
	case m == nil:
	case m[2] != "":
		c.line("nvidia open %s %s", m[4], m[2])
	default:
		c.line("nvidia proprietary %s %s", m[4], m[3])
	}
	c.keep("proc/driver/nvidia/params")
}

// keep keeps a file as it is.
func (c *converter) keep(name string) {
	if text, ok := c.read(name); ok {
		c.files[name] = text
	}
}

// asIs are files without anything of one machine's own.
var asIs = []string{
	"proc/sys/kernel/numa_balancing", "proc/sys/vm/overcommit_memory", "sys/class/mem/null/dev",
	"sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name", "sys/class/infiniband_verbs/abi_version",
	"sys/kernel/security/lockdown", "sys/kernel/mm/memory_peers/*/version", "sys/kernel/tracing/events/dma_buf/enable",
	"proc/driver/nvidia/capabilities/mig/config", "proc/self/limits",
	"sys/class/kfd/kfd/topology/nodes/*/gpu_id", "sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties", "sys/class/kfd/kfd/topology/nodes/*/properties",
	"etc/libibverbs.d/*.driver", "usr/lib64/libibverbs.so.1.*",
}

// present are files of which only the presence counts.
var present = []string{"dev/kfd", "dev/nvidiactl", "sys/kernel/btf/vmlinux", "etc/cdi/*.yaml", "usr/lib64/libibverbs/*.so", "run/systemd/private", "var/lib/systemd/random-seed"}

// relevant are the words of the kernel's command line, of the environment and of its
// log that bear on peer-to-peer.
var (
	relevantWord = regexp.MustCompile(`^(iommu|iommu\..*|intel_iommu|amd_iommu|pci|pcie_acs_override|vfio-pci\.ids|nvidia.*|amdgpu\..*|xe\..*|i915\..*|numa_balancing)=`)
	relevantEnv  = regexp.MustCompile(`^(UCX|FI|NCCL|RCCL|NIXL|MC|PYTORCH|NVSHMEM|OFI_NCCL|HSA|WITH_NVIDIA)_`)
	shared       = regexp.MustCompile(` /dev/shm `)
	relevantLog  = regexp.MustCompile(`NVRM|nvidia|peer_mem|peer memory|DMAR|AMD-Vi|arm-smmu|iommu|peer-to-peer|P2P|ACS|mlx5|bnxt|amdgpu| xe |AER`)
)

func (c *converter) others() {
	for _, pattern := range asIs {
		for _, name := range c.glob(pattern) {
			c.keep(name)
		}
	}
	for _, pattern := range present {
		for _, name := range c.glob(pattern) {
			c.files[name] = ""
		}
	}
	if text, ok := c.read("proc/cmdline"); ok {
		c.files["proc/cmdline"] = strings.Join(keepMatching(strings.Fields(text), relevantWord), " ") + "\n"
	}
	for _, name := range []string{"proc/self/cgroup", "proc/1/cgroup"} {
		if text, ok := c.read(name); ok {
			c.files[name] = cgroups(text)
		}
	}
	if text, ok := c.read("proc/self/environ"); ok {
		c.files["proc/self/environ"] = strings.Join(append([]string{"PATH=/bin"}, keepMatching(strings.Split(text, "\x00"), relevantEnv)...), "\x00") + "\x00"
	}
	if text, ok := c.read("proc/self/status"); ok {
		c.files["proc/self/status"] = "Name:\tp2pcheck\nCapEff:\t" + valueOf(text, "CapEff") + "\n"
	}
	if text, ok := c.read("proc/self/mountinfo"); ok {
		c.files["proc/self/mountinfo"] = strings.Join(keepMatching(strings.SplitAfter(text, "\n"), shared), "")
	}
	if text, ok := c.read("dev/kmsg"); ok {
		c.files["dev/kmsg"] = "6,0,0,-;Linux version\n"
		for _, line := range keepMatching(strings.Split(text, "\n"), relevantLog) {
			c.files["dev/kmsg"] += line + "\n"
		}
	}
	for _, name := range []string{"proc/self/ns/user", "proc/self/ns/pid"} {
		if text, err := os.Readlink(filepath.Join(c.root, name)); err == nil {
			c.texts[name] = text
		}
	}
}

// cgroups are the groups of a process without the names of users and jobs.
func cgroups(text string) string {
	out := ""
	for line := range strings.Lines(text) {
		at := strings.LastIndex(line, ":")
		switch group := strings.TrimSpace(line[at+1:]); group {
		case "/user.slice", "/system.slice", "/init.scope":
			out += line
		default:
			out += line[:at+1] + "/\n"
		}
	}
	return out
}

func keepMatching(in []string, r *regexp.Regexp) []string {
	var out []string
	for _, s := range in {
		if r.MatchString(s) {
			out = append(out, s)
		}
	}
	return out
}

// print prints the files that the included one does not have, and drops what it has
// beyond them.
func (c *converter) print(include string) error {
	common := map[string]string{}
	if include != "" {
		text, err := os.ReadFile(filepath.Join("p2p/testdata/machines/common", include+".txt"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "file "); ok {
				name, text, _ := strings.Cut(rest, " =")
				common[name] = strings.TrimPrefix(text, " ")
			}
		}
	}
	for _, name := range sorted(c.files) {
		text := escape(c.files[name])
		if has, ok := common[name]; !ok || has != text {
			c.line("%s", strings.TrimRight("file "+name+" = "+text, " "))
		}
		delete(common, name)
	}
	for _, name := range sorted(common) {
		c.line("drop %s", name)
	}
	if include == "" {
		for _, name := range sorted(c.texts) {
			c.line("text %s -> %s", name, c.texts[name])
		}
	}
	return nil
}

func escape(text string) string {
	text = strings.TrimSuffix(text, "\n")
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
