// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// vendorModules are those that a vendor's driver package brings instead of the
// kernel's, and those of our own.
var vendorModules = strings.Fields("ib_core ib_cm iw_cm rdma_cm ib_uverbs ib_uverbs_support ib_umad rdma_ucm rdma_rxe " +
	"drm drm_panel drm_kms_helper drm_shmem_helper drm_client_lib ttm drm_buddy gpu_buddy vgem virtio_gpu softgpu testimporter testexporter")

// loaded are the modules that are loaded, in the order in which they were.
func loaded(t testing.TB) (names []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/modules") // the newest first
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	slices.Reverse(names)
	return names
}

func loadedVendor(t testing.TB) []string {
	t.Helper()
	return slices.DeleteFunc(loaded(t), func(m string) bool { return !slices.Contains(vendorModules, m) })
}

// rdmaLink is a software RDMA device and what it is on.
type rdmaLink struct{ Ifname, Netdev string }

func rdmaLinks(t testing.TB) (links []rdmaLink) {
	t.Helper()
	out, err := exec.Command("rdma", "-j", "link", "show").Output()
	if err != nil {
		t.Fatalf("rdma link show: %v", err)
	}
	if err := json.Unmarshal(out, &links); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return links
}

func must(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// unload removes the vendors' modules and the devices of theirs.
func unload(t testing.TB, links []rdmaLink) {
	t.Helper()
	for _, l := range links {
		must(t, "rdma", "link", "delete", l.Ifname)
	}
	// Those that others use go later; and a device's last user a moment after it ended.
	for end := time.Now().Add(Limit(time.Minute)); ; time.Sleep(100 * time.Millisecond) {
		left := loadedVendor(t)
		if len(left) == 0 {
			return
		}
		var said []byte
		for _, m := range slices.Backward(left) {
			if m == "virtio_gpu" {
				if why := virtioGPUBusy(t); why != "" {
					said = fmt.Appendf(said, "virtio_gpu %s\n", why)
					continue
				}
			}
			if slices.Contains(loadedVendor(t), m) {
				out, _ := exec.Command("modprobe", "-r", m).CombinedOutput()
				said = append(said, out...)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%v stay loaded: %s", loadedVendor(t), said)
		}
	}
}

// virtioGPUBusy says why virtio_gpu is not to be removed now, "" if nothing is known.
//
// The driver frees a buffer when the device has answered that it let go of it, in a work
// that the answer's interrupt queues. virtio_gpu_deinit() flushes that work, and resets
// the device afterwards: an answer between the two has the work run while the driver
// goes (Linux 6.12 to 7.3). drm_mm_takedown() then warns, or the work writes to freed
// memory; a program that closes a device and unloads the driver in a loop has both within
// seconds. So the driver stays until it has had no interrupt for a second.
func virtioGPUBusy(t testing.TB) string {
	t.Helper()
	users, err := os.ReadFile("/sys/module/virtio_gpu/refcnt")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.TrimSpace(string(users)); n != "0" {
		return "has users: " + n
	}
	before := virtioGPUInterrupts(t)
	time.Sleep(Limit(time.Second))
	if virtioGPUInterrupts(t) != before {
		return "is being answered by its device"
	}
	return ""
}

// virtioGPUInterrupts are the lines of its interrupts, with their counts.
func virtioGPUInterrupts(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	lines := controlQueues(string(text))
	if devices, _ := filepath.Glob("/sys/bus/virtio/drivers/virtio_gpu/virtio*"); len(lines) == 0 && len(devices) > 0 {
		t.Fatalf("no interrupt of %v among\n%s", devices, text)
	}
	return strings.Join(lines, "\n")
}

var virtioControl = regexp.MustCompile(`(?m)^.* virtio[0-9]+-control$`)

// controlQueues are the lines of /proc/interrupts for queues that their drivers call so.
func controlQueues(interrupts string) []string {
	return virtioControl.FindAllString(interrupts, -1)
}

// load brings modules back, and the devices of theirs.
func load(t testing.TB, modules []string, links []rdmaLink) {
	t.Helper()
	for _, m := range modules {
		args := []string{m}
		if m == "drm_kms_helper" {
			args = append(args, "fbdev_emulation=0") // as the testbed loads it
		}
		must(t, "modprobe", args...)
	}
	for _, l := range links {
		must(t, "rdma", "link", "add", l.Ifname, "type", "rxe", "netdev", l.Netdev)
	}
}

var insmod = regexp.MustCompile(`(?m)^install (\w+) .*insmod ([^ ;]+)`)

// moduleFile is what modprobe loads, "" for what is built in or not there.
func moduleFile(t testing.TB, module string) string {
	t.Helper()
	file := ""
	if out, err := exec.Command("modinfo", "-n", module).Output(); err == nil {
		file = strings.TrimSpace(string(out))
	} else { // our own, which modprobe has an instruction for
		confs, _ := filepath.Glob("/run/modprobe.d/*")
		for _, conf := range confs {
			text, err := os.ReadFile(conf)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range insmod.FindAllStringSubmatch(string(text), -1) {
				if m[1] == module {
					file = m[2]
				}
			}
		}
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return ""
	} else if err != nil {
		t.Fatal(err)
	}
	return file
}

// stripFile takes the type information out of a module, and returns what the file
// was. modprobe looks at its beginning, not at its name, for how it is packed.
func stripFile(t testing.TB, file string) []byte {
	t.Helper()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := exec.Command("xz", "-dcf", file).Output() // or a copy of what is not packed
	if err != nil {
		t.Fatalf("xz -dcf %s: %v", file, err)
	}
	tmp := filepath.Join(t.TempDir(), "module.ko")
	if err := os.WriteFile(tmp, plain, 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, "objcopy", "--remove-section", ".BTF", "--remove-section", ".BTF.base", tmp)
	after, err := os.ReadFile(tmp)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, file, after)
	return before
}

// overwrite keeps the file that it is: another is mounted over some.
func overwrite(t testing.TB, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// HasTypes reports whether a module is loaded with type information.
func HasTypes(module string) bool {
	_, err := os.Stat(filepath.Join("/sys/kernel/btf", module))
	return err == nil
}

// StripBTF gives the machine RDMA and DRM modules without type information, as
// vendors' driver packages have them, until the test is over. Devices keep their
// names. It returns the modules that it has stripped; those that the machine had
// not loaded are stripped too, and stay as they are, not loaded.
func StripBTF(t testing.TB) (stripped []string) {
	t.Helper()
	VM(t)
	modules, links := loadedVendor(t), rdmaLinks(t)
	unload(t, links)
	originals := map[string][]byte{}
	for _, m := range vendorModules {
		if file := moduleFile(t, m); file != "" {
			originals[file] = stripFile(t, file)
			stripped = append(stripped, m)
		}
	}
	t.Cleanup(func() {
		unload(t, rdmaLinks(t))
		for file, data := range originals {
			overwrite(t, file, data)
		}
		load(t, modules, links)
		for _, m := range modules {
			if !HasTypes(m) {
				t.Errorf("%s has not got its type information back", m)
			}
		}
	})
	load(t, modules, links)
	for _, m := range loadedVendor(t) {
		if HasTypes(m) {
			t.Errorf("%s has type information", m)
		}
	}
	return stripped
}

// Rerun runs other tests of this test binary again, in a process of their own: with
// the modules that the machine has now. All have to pass, and none may be skipped.
// subtests, such as "/^a$", picks among those of tests.
func Rerun(t testing.TB, subtests string, tests ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", fmt.Sprintf("^TestVM(%s)$%s", strings.Join(tests, "|"), subtests))
	out, err := cmd.CombinedOutput()
	text := "\n" + string(out)
	missing := slices.DeleteFunc(slices.Clone(tests), func(name string) bool { return strings.Contains(text, "\n--- PASS: TestVM"+name+" ") })
	if err != nil || len(missing) > 0 || skipsMore(text) {
		t.Errorf("%v; not passed: %v%s", err, missing, text)
	}
}

// skipsMore reports a subtest that was skipped, but for those of what the kernels of this
// architecture lack.
func skipsMore(text string) bool {
	for line := range strings.Lines(text) {
		_, name, skipped := strings.Cut(strings.TrimSpace(line), "--- SKIP: ")
		name, _, _ = strings.Cut(name, " ")
		if skipped && !Lacks(name[strings.LastIndex(name, "/")+1:]) {
			return true
		}
	}
	return false
}
