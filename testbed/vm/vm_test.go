// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/testbed/arch"
	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/klog"
	"github.com/gpurdma/gpurdma/testbed/layout"
	"github.com/gpurdma/gpurdma/testbed/module"
)

func writeTest(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func testTree(t *testing.T, dir string) *module.Tree {
	t.Helper()
	writeTest(t, filepath.Join(dir, "modules.dep"), "kernel/drm.ko:\nkernel/drm_kms_helper.ko: kernel/drm.ko\nkernel/vgem.ko: kernel/drm_kms_helper.ko kernel/drm.ko\n"+
		"kernel/ib_core.ko:\nkernel/rdma_rxe.ko.xz: kernel/ib_core.ko\n")
	writeTest(t, filepath.Join(dir, "modules.builtin"), "kernel/udmabuf.ko\n")
	tree, err := module.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestPlan(t *testing.T) {
	dir := t.TempDir()
	tree := testTree(t, dir)
	own := map[string]ownModule{
		"rdma_rxe": {name: "rdma_rxe", file: "/own/rdma_rxe.ko"},
		"softgpu":  {name: "softgpu", file: "/own/softgpu.ko", data: []byte("\x00depends=drm\x00vermagic=x \x00")},
	}
	got, err := plan(tree, []string{"drm_kms_helper fbdev_emulation=0", "vgem", "?udmabuf", "?nonesuch", "rdma_rxe", "softgpu size=1"}, own)
	if err != nil {
		t.Fatal(err)
	}
	k := func(f string) string { return filepath.Join(dir, "kernel", f) }
	want := []planned{
		{"drm", "", k("drm.ko")}, {"drm_kms_helper", "fbdev_emulation=0", k("drm_kms_helper.ko")}, {"vgem", "", k("vgem.ko")},
		{"ib_core", "", k("ib_core.ko")}, {"rdma_rxe", "", "/own/rdma_rxe.ko"}, {"softgpu", "size=1", "/own/softgpu.ko"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := plan(tree, []string{"nonesuch"}, nil); !errors.Is(err, module.ErrUnknown) {
		t.Errorf("a missing module: got %v", err)
	}
	stock, err := plan(tree, []string{"rdma_rxe"}, nil)
	if err != nil || stock[1].file != k("rdma_rxe.ko.xz") {
		t.Errorf("stock: %v, %v", stock, err)
	}

	hide, conf, err := replacements(tree, dir, own)
	if err != nil || !reflect.DeepEqual(hide, map[string]string{"kernel/rdma_rxe.ko.xz": "/own/rdma_rxe.ko"}) {
		t.Errorf("hidden: %v, %v", hide, err)
	}
	if want := "install softgpu modprobe drm && insmod /own/softgpu.ko $CMDLINE_OPTS\nremove softgpu rmmod softgpu\n"; conf != want {
		t.Errorf("modprobe.d: %q, want %q", conf, want)
	}
}

func TestOwnModules(t *testing.T) {
	tree := layout.Tree{Build: t.TempDir(), Arch: arch.Default}
	k := kernel.Kernel{Series: "6.1", Release: "6.1.0-56-amd64"}
	if own, err := ownModules(tree.Modules(k.Series), k); err != nil || len(own) != 0 {
		t.Errorf("none built: %v, %v", own, err)
	}
	file := writeTest(t, filepath.Join(tree.Modules("6.1"), "rdma_rxe.ko"), "\x00vermagic=6.1.0-56-amd64 SMP\x00")
	if own, err := ownModules(tree.Modules(k.Series), k); err != nil || own["rdma_rxe"].file != file {
		t.Errorf("got %v, %v", own, err)
	}
	k.Release = "6.1.0-57-amd64"
	_, err := ownModules(tree.Modules(k.Series), k)
	if err == nil || !strings.Contains(err.Error(), "make kernel KERNEL=6.1") {
		t.Errorf("built for another kernel: got %v, want advice to build again", err)
	}
	writeTest(t, file, "not a module")
	if _, err := ownModules(tree.Modules(k.Series), k); err == nil {
		t.Error("not a module: no error")
	}
}

// The image changes when, and only when, what it is made from changes.
func TestInitramfsCache(t *testing.T) {
	tree := layout.Tree{Build: t.TempDir(), Arch: arch.Default}
	file := writeTest(t, filepath.Join(t.TempDir(), "a.ko"), "A")
	list := []planned{{"a", "", file}}
	first, err := initramfs(tree, "6.1", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := initramfs(tree, "6.1", list, nil)
	if err != nil || again != first {
		t.Errorf("the same list: %s, %v; want %s", again, err, first)
	}
	writeTest(t, file, "AB")
	changed, err := initramfs(tree, "6.1", list, nil)
	if err != nil || changed == first {
		t.Errorf("a changed module gives the same image: %s, %v", changed, err)
	}
	late, err := initramfs(tree, "6.1", nil, list)
	if err != nil || late == changed {
		t.Errorf("another order gives the same image: %s, %v", late, err)
	}
	if stages, _ := filepath.Glob(filepath.Join(tree.Cache(), "6.1", "stage-*")); len(stages) != 0 {
		t.Errorf("left behind: %v", stages)
	}
	if _, err := initramfs(tree, "6.1", []planned{{"b", "", "/nonexistent.ko"}}, nil); err == nil {
		t.Error("a missing file: no error")
	}
}

func TestExposed(t *testing.T) {
	o := Options{Tree: layout.Tree{Root: "/tmp/clone", Build: "/tmp/clone/build"}, Expose: []string{"/tmp/go-build7/b001", "/tmp/clone/dmabuf", "/tmp/cl"}}
	got := o.exposed()
	if want := []string{"/tmp/cl", "/tmp/clone", "/tmp/go-build7/b001"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		f := writeTest(t, filepath.Join(dir, fmt.Sprintf("2%d", i), "log"), "x")
		when := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(filepath.Dir(f), when, when); err != nil {
			t.Fatal(err)
		}
	}
	writeTest(t, filepath.Join(dir, "other"), "x")
	prune(dir, "2*", 2)
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, "23"), filepath.Join(dir, "24"), filepath.Join(dir, "other")}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

// TestStream checks that a command's output counts as complete only when all
// of it has come.
func TestStream(t *testing.T) {
	guest, host := net.Pipe()
	s := newStream(host)
	var sink strings.Builder
	s.reset(&sink)
	go func() {
		guest.Write([]byte("hello "))
		guest.Write([]byte("world"))
	}()
	if err := s.await(11, 10*time.Second); err != nil || sink.String() != "hello world" {
		t.Errorf("got %q, %v", sink.String(), err)
	}
	s.reset(&sink)
	if err := s.await(0, time.Second); err != nil {
		t.Errorf("no output: %v", err)
	}
	if err := s.await(5, 10*time.Millisecond); err == nil {
		t.Error("missing output: no error")
	}
	guest.Close()
	if err := s.await(5, time.Minute); err == nil || !strings.Contains(err.Error(), "0 of 5") {
		t.Errorf("a machine that is gone: got %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestStreamSinkError(t *testing.T) {
	guest, host := net.Pipe()
	s := newStream(host)
	s.reset(failing{})
	go guest.Write([]byte("x"))
	if err := s.await(1, 10*time.Second); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want the writer's error", err)
	}
}

// Only a death by a breakpoint that memory does not have, or with flags that cannot
// be, under emulation, counts as the emulator's.
func TestCorrupted(t *testing.T) {
	const int3 = "Oops: int3: 0000 [#1] PREEMPT SMP NOPTI"
	fault := func(title string, emulated bool, lines ...string) error {
		return fmt.Errorf("boot: %w", &KernelError{Node: "vm", Emulated: emulated, Reports: []klog.Report{{Title: title, Lines: lines}}})
	}
	const none, there = "[ 1.0] Code: c7 43 18 00 00 00 00 66 <90> 48 8b 83", "[ 1.0] Code: c7 43 18 00 00 00 00 cc <90> 48 8b 83"
	const gpf = "Oops: general protection fault, probably for non-canonical address 0x229a335709948f46: 0000 [#1] PREEMPT SMP NOPTI"
	const (
		badFlags  = "[ 0.9] RSP: 0000:ffffffffa1c03bf0 EFLAGS: 40001693"
		badFlags2 = "[ 1.2] RSP: 0018:ff6e69878003b9b0 EFLAGS: 9e4e8a62"
		flags     = "[ 0.9] RSP: 0000:ffffffffa1c03bf0 EFLAGS: 00010246"
		allFlags  = "[ 0.9] RSP: 0000:ffffffffa1c03bf0 EFLAGS: 003f7fd7"
	)
	const (
		stall      = "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"
		backtrace0 = "[  270.803032] NMI backtrace for cpu 0"
		idle       = "[  270.803332]  default_idle+0x9/0x20"
		noTimer0   = "[  270.846696] rcu: \tPossible timer handling issue on cpu=0 timer-softirq=2393"
	)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{fault(gpf, true, none, badFlags), true},
		{fault("Oops: double fault: 0000 [#1] PREEMPT SMP NOPTI", true, badFlags2, flags), true},
		{fault(gpf, true, none, flags), false},
		{fault(gpf, true, none, allFlags), false},
		{fault(gpf, true, flags, badFlags), false},
		{fault(gpf, false, none, badFlags), false},
		{fault(gpf, true, "[ 0.9] EFLAGS: 4000169x"), false},
		{fault(int3, true, none), true},
		{fault(int3, true, "[ 1.0] CPU: 0 PID: 0 Comm: swapper/0", none, "[ 1.0] Code: cc <cc>"), true},
		{fault(int3, false, none), false},
		{fault(int3, true, there), false},
		{fault(int3, true), false},
		{fault("BUG: kernel NULL pointer dereference, address: 8", true, none), false},
		{fault(stall, true, backtrace0, idle, noTimer0), true},
		{fault(stall, true, "[ 2.0] NMI backtrace for cpu 1", idle, noTimer0), false},
		{fault(stall, true, backtrace0, "[ 2.0]  softgpu_move+0x1/0x2", noTimer0), false},
		{fault(stall, true, backtrace0, idle), false},
		{fault(stall, false, backtrace0, idle, noTimer0), false},
		{fault("BUG: soft lockup", true, backtrace0, idle, noTimer0), false},
		{&HangError{Node: "vm"}, false},
		{fmt.Errorf("boot: %w", &DeathError{Node: "vm", QEMU: "warning: no AVX\nqemu: physmem.c:2671: iotlb_to_section: Assertion `i < n' failed."}), true},
		{&DeathError{Node: "vm", QEMU: "qemu: could not open the disk"}, false},
	} {
		if got := Corrupted(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// A machine is started a second time if nothing of the project's has run in it, and never a
// third time.
func TestTwice(t *testing.T) {
	stall := &KernelError{Node: "a", Reports: []klog.Report{{Title: "rcu: rcu_preempt kthread starved for 15002 jiffies!"}}}
	hang := &HangError{Node: "a", What: "init did not report within 3m0s"}
	emulated, real := &node{opts: Options{Accel: "tcg"}}, &node{opts: Options{Accel: "kvm"}}
	for _, c := range []struct {
		name  string
		errs  []error // of the tries
		tries int
		fails bool
	}{
		{"well", []error{nil}, 1, false},
		{"a stall before init", []error{emulated.unborn(stall), nil}, 2, false},
		{"a hang before init, in one of two", []error{errors.Join(nil, emulated.unborn(fmt.Errorf("node a: %w", hang))), nil}, 2, false},
		{"a hang before init, and another node's refusal", []error{errors.Join(emulated.unborn(hang), errors.New("node b runs another kernel")), nil}, 1, true},
		{"twice", []error{emulated.unborn(stall), emulated.unborn(hang), nil}, 2, true},
		{"a stall after init", []error{stall, nil}, 1, true},
		{"a hang after init", []error{hang, nil}, 1, true},
		{"on a processor", []error{real.unborn(stall), nil}, 1, true},
		{"QEMU's own refusal", []error{emulated.unborn(&DeathError{Node: "a", QEMU: "no such device"}), nil}, 1, true},
		{"interrupted", []error{emulated.unborn(context.Canceled), nil}, 1, true},
		{"the emulator's fault", []error{&DeathError{QEMU: "Assertion `i < n' failed"}, nil}, 2, false},
	} {
		tries := 0
		_, err := twice(func() (*VM, error) { tries++; return nil, c.errs[tries-1] })
		if tries != c.tries || (err != nil) != c.fails {
			t.Errorf("%s: %d tries, %v; want %d, and failure %v", c.name, tries, err, c.tries, c.fails)
		}
	}
	var k *KernelError
	if err := emulated.unborn(stall); !errors.As(err, &k) {
		t.Errorf("%v is no KernelError, by which the status is chosen", err)
	}
}

func TestQuote(t *testing.T) {
	if got, want := quote([]string{"sh", "-c", "echo 'a'", "", "x=y,z"}), `sh -c 'echo '\''a'\''' '' x=y,z`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Only virtio-gpu's warnings about its queues are ignored, and only while the machine ends.
func TestEnding(t *testing.T) {
	const seen = "WARNING: CPU: 1 PID: 143 at drivers/gpu/drm/virtio/virtgpu_vq.c:373 virtio_gpu_queue_fenced_ctrl_buffer+0x4ce/0x590 [virtio_gpu]"
	n := &node{}
	say := func(line string) { n.scanner.Write([]byte("[    9.626858] " + line + "\n")) }
	say(seen)
	n.forgive()
	say(seen)
	say("WARNING: CPU: 0 PID: 9 at drivers/gpu/drm/softgpu/main.c:7 softgpu_release+0x1/0x2 [softgpu]")
	var k *KernelError
	if err := n.faults(); !errors.As(err, &k) || len(k.Reports) != 2 || !strings.Contains(k.Reports[1].Title, "softgpu") {
		t.Errorf("%v, want the one before the end and softgpu's", err)
	}
}
