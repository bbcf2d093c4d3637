// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// mending is a check that fails until its remedy is applied.
type mending struct {
	id, scope string
	was       string // its result before
	command   string // the remedy's command, with words in capitals for values that p2pcheck cannot know
	fill      []string
	spoil     func(t *testing.T)
	apply     func(t *testing.T, command string)      // nil: a shell does
	attr      func(t *testing.T) *syscall.SysProcAttr // of the command, as a process of its own
	env       []string
}

// unprivilegedID is a user and a group without privileges.
const unprivilegedID = 65534

// The test runs the command of each remedy that needs no reboot, word for word, and the check passes
// then.
//
// Remedies for hardware that no machine of the test bed has are missing: GPUs and NICs of vendors
// (setpci, dcb, force_probe, options of nvidia), a subnet manager, BARs that can be resized, hardware
// NICs of different MTUs. So are remedies that run p2pcheck again (--config, --root).
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMRuntimeRemedies(t *testing.T) {
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0].PCI
	root := false
	for name, x := range map[string]mending{
		"NUMA balancing": {
			id: "KRN-NUMA-BAL", was: "warn", command: "sysctl kernel.numa_balancing=0",
			spoil: func(t *testing.T) { rewrite(t, "/proc/sys/kernel/numa_balancing", "1") },
		},
		"GPU that sleeps": {
			id: "PCIE-PM", scope: gpu, was: "warn", command: "echo on > /sys/bus/pci/devices/" + gpu + "/power/control",
			spoil: func(t *testing.T) {
				dir := "/sys/bus/pci/devices/" + gpu + "/power/"
				rewrite(t, dir+"control", "auto")
				until(t, "the GPU to sleep", func() bool { return content(t, dir+"runtime_status") == "suspended" })
			},
		},
		"ib_uverbs": {
			id: "KRN-CFG-UVERBS", was: "fail", command: "modprobe ib_uverbs",
			spoil: withoutUverbs,
			attr:  func(*testing.T) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }, // this process has libibverbs loaded
		},
		"exclusive RDMA devices": {
			id: "ENV-NETNS", was: "warn", command: "rdma system set netns shared",
			spoil: func(t *testing.T) {
				t.Cleanup(func() { retry(t, "rdma system set netns shared") })
				retry(t, "rdma system set netns exclusive")
			},
			apply: retry, // the kernel refuses while a namespace is left, which goes a moment after its last process
			attr: func(*testing.T) *syscall.SysProcAttr {
				return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
			},
			env: []string{asContained + "=network"},
		},
		"small MTU": {
			id: "NET-LINK", scope: "nic0", was: "warn", command: "ip link set nic0 mtu 9000",
			spoil: func(t *testing.T) { changed(t, "nic0", "mtu 1500") },
		},
		"link that is down": {
			id: "NET-LINK", scope: "nic1", was: "warn", command: "ip link set nic1 up mtu 9000",
			spoil: func(t *testing.T) { changed(t, "nic1", "down") },
		},
		"no IPv4 address": {
			id: "NET-GID", scope: "rxe-soft/1", was: "warn", command: "ip addr add ADDRESS/24 dev dummy0", fill: []string{"ADDRESS", "10.9.0.1"},
			spoil: func(t *testing.T) { shell(t, "ip addr del 10.9.0.1/24 dev dummy0") },
		},
		"link-local addresses": {
			id: "NET-IPV6LL", scope: "rxe-soft/1", was: "warn", command: "ip addr add ADDRESS/24 dev dummy0", fill: []string{"ADDRESS", "10.9.0.1"},
			spoil: func(t *testing.T) { shell(t, "ip addr del 10.9.0.1/24 dev dummy0") },
		},
		"locked memory": {
			// The test machine's root is an overlay. An unprivileged user takes that for a container's.
			id: "LIM-MEMLOCK", was: "fail", command: "docker run --ulimit memlock=-1",
			spoil: func(t *testing.T) { lockable(t, 8<<20) },
			apply: func(t *testing.T, _ string) { lockable(t, unix.RLIM_INFINITY) }, // as systemd would
			attr:  asUnprivileged,
		},
		"small shared memory": {
			id: "CTR-SHM", was: "warn", command: "--shm-size 1g",
			spoil: func(t *testing.T) {
				t.Cleanup(func() { shell(t, "mount -o remount,size=50% /dev/shm") })
				shell(t, "mount -o remount,size=64m /dev/shm")
			},
			apply: func(t *testing.T, _ string) { shell(t, "mount -o remount,size=1g /dev/shm") }, // as a container's runtime would
		},
		"GPU of another group": {
			id: "GPU-RENDER-PERM", scope: gpu, was: "fail", command: "usermod -aG render,video USER", fill: []string{"USER", "nobody"},
			spoil: func(t *testing.T) {
				for _, group := range []string{"render", "video"} {
					shell(t, "getent group "+group+" || groupadd -r "+group)
				}
				t.Cleanup(func() { shell(t, "usermod -G '' nobody") })
				for _, node := range glob(t, "/dev/dri/renderD*") {
					t.Cleanup(func() { shell(t, "chgrp root "+node) })
					shell(t, "chgrp render "+node)
					mode(t, node, 0o660)
				}
			},
			attr: asUnprivileged,
		},
		"NIC that is closed": {
			id: "NIC-UVERBS", scope: "rxe0", was: "fail", command: "chmod 666 /dev/infiniband/" + uverbs(t, "rxe0"),
			spoil: func(t *testing.T) { mode(t, "/dev/infiniband/"+uverbs(t, "rxe0"), 0o600) },
			attr:  asUnprivileged,
		},
		"RDMA control group": {
			id: "LIM-RDMA-CG", was: "fail", command: "echo 'rxe0 hca_handle=max hca_object=max' > " + controlGroup + "/rdma.max",
			spoil: func(t *testing.T) {
				t.Cleanup(func() { shell(t, "echo -rdma > /sys/fs/cgroup/cgroup.subtree_control") })
				shell(t, "echo +rdma > /sys/fs/cgroup/cgroup.subtree_control")
				t.Cleanup(func() { retry(t, "rmdir "+controlGroup) })
				shell(t, "mkdir "+controlGroup+" && echo rxe0 hca_handle=0 hca_object=0 > "+controlGroup+"/rdma.max")
			},
			attr: inControlGroup,
		},
		"no privileges": {
			id: "ENV-CFGSPACE", was: "unknown", command: "sudo p2pcheck",
			spoil: func(*testing.T) {},
			apply: func(*testing.T, string) { root = true },
			attr: func(t *testing.T) *syscall.SysProcAttr {
				if root {
					return nil
				}
				return asUnprivileged(t)
			},
		},
	} {
		t.Run(name, x.test)
	}
}

func (x mending) test(t *testing.T) {
	x.spoil(t)
	// Some take a moment, there and back: a link comes up, a GID is made, a NIC
	// whose MTU changes is down meanwhile.
	var worst string
	var all []result.Finding
	until(t, x.id+": "+x.was+", with the remedy "+x.command, func() bool {
		worst, all = x.look(t)
		return worst == x.was && !slices.ContainsFunc(all, func(f result.Finding) bool {
			return f.Result != "pass" && f.Result != "skip" && (f.Remedy == nil || f.Remedy.Command != x.command)
		})
	})
	if t.Failed() {
		said, err := json.Marshal(all)
		t.Fatalf("before: %s: %s %v", worst, said, err)
	}
	command := strings.NewReplacer(x.fill...).Replace(x.command)
	if x.apply != nil {
		x.apply(t, command)
	} else {
		shell(t, command)
	}
	until(t, x.id+" to pass", func() bool {
		worst, all = x.look(t)
		return worst == "pass"
	})
	t.Logf("%s: %s, and after %q %s: %s", x.id, x.was, command, worst, all[0].Read)
}

// look is the worst that the check finds.
func (x mending) look(t *testing.T) (string, []result.Finding) {
	t.Helper()
	family, _, _ := strings.Cut(x.id, "-")
	others := slices.DeleteFunc(checkFamilies(), func(other string) bool { return other == family })
	args := []string{"--json", "--gpu", "softgpu", "--skip", strings.Join(others, ",")}
	var d result.Run
	if x.attr != nil {
		d, _ = ran(t, x.attr(t), x.env, args...)
	} else {
		var out, stderr bytes.Buffer
		(&app{stdout: &out, stderr: &stderr}).run(args)
		whole := struct{ Result *result.Run }{&d}
		if err := json.Unmarshal(out.Bytes(), &whole); err != nil {
			t.Fatalf("%v: %s%s", err, &out, &stderr)
		}
	}
	all := findingsWith(d, x.id, x.scope)
	if len(all) == 0 {
		t.Fatalf("%s finds nothing of %q", x.id, x.scope)
	}
	return result.Worst(all)[x.id], all
}

// controlGroup is one of this test.
const controlGroup = "/sys/fs/cgroup/p2pcheck"

func inControlGroup(t *testing.T) *syscall.SysProcAttr {
	t.Helper()
	dir, err := os.Open(controlGroup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
}

// asUnprivileged runs a command as that user, with the groups that /etc/group gives it now.
func asUnprivileged(t *testing.T) *syscall.SysProcAttr {
	t.Helper()
	out, err := exec.Command("id", "-G", "nobody").Output()
	if err != nil {
		t.Fatal(err)
	}
	as := &syscall.Credential{Uid: unprivilegedID, Gid: unprivilegedID}
	for _, text := range strings.Fields(string(out)) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		as.Groups = append(as.Groups, uint32(n))
	}
	return &syscall.SysProcAttr{Credential: as}
}

// lockable sets the limit of locked memory, which processes inherit.
func lockable(t *testing.T, bytes uint64) {
	t.Helper()
	var old unix.Rlimit
	limit := unix.Rlimit{Cur: bytes, Max: bytes}
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &old, nil); err != nil {
			t.Error(err)
		}
	})
}

// changed changes a network device that has an MTU of 4200 and is up.
func changed(t *testing.T, dev, change string) {
	t.Helper()
	t.Cleanup(func() {
		shell(t, "ip link set "+dev+" up mtu 4200")
		until(t, dev+" to be up", func() bool { return content(t, "/sys/class/net/"+dev+"/operstate") == "up" })
	})
	shell(t, "ip link set "+dev+" "+change)
}

// withoutUverbs takes the RDMA devices away, and their drivers.
func withoutUverbs(t *testing.T) {
	var back []string
	for _, file := range glob(t, "/sys/class/infiniband_verbs/uverbs*/ibdev") {
		name := content(t, file)
		back = append(back, fmt.Sprintf("rdma link add %s type rxe netdev %s", name, content(t, "/sys/class/infiniband/"+name+"/parent")))
	}
	t.Cleanup(func() {
		shell(t, "modprobe -a rdma_ucm rdma_rxe")
		for _, add := range back {
			shell(t, add)
		}
	})
	for _, add := range back {
		shell(t, "rdma link delete "+strings.Fields(add)[3])
	}
	shell(t, "modprobe -r rdma_ucm rdma_rxe ib_uverbs")
}

// uverbs is the name of a NIC's device file.
func uverbs(t *testing.T, nic string) string {
	t.Helper()
	for _, file := range glob(t, "/sys/class/infiniband_verbs/uverbs*/ibdev") {
		if content(t, file) == nic {
			return filepath.Base(filepath.Dir(file))
		}
	}
	t.Fatalf("%s has no device file", nic)
	return ""
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	slices.Sort(names)
	return names
}

func content(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// rewrite writes a file of the kernel's, and puts back what it had.
func rewrite(t *testing.T, name, text string) {
	t.Helper()
	old := content(t, name)
	if err := os.WriteFile(name, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(name, []byte(old), 0); err != nil {
			t.Error(err)
		}
	})
}

// mode gives a file a mode, and back what it had.
func mode(t *testing.T, name string, to os.FileMode) {
	t.Helper()
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod(name, st.Mode().Perm()); err != nil {
			t.Error(err)
		}
	})
}

// shell runs a command as a person would.
func shell(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", command, err, out)
	}
}

// retry repeats a command until it succeeds.
func retry(t *testing.T, command string) {
	t.Helper()
	until(t, command, func() bool { return exec.Command("/bin/sh", "-c", command).Run() == nil })
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(testenv.Limit(30 * time.Second)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Errorf("waited in vain for %s", what)
}
