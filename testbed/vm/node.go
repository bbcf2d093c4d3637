// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpurdma/gpurdma/testbed/klog"
	"github.com/gpurdma/gpurdma/testbed/machine"
	"github.com/gpurdma/gpurdma/testbed/wire"
)

// node is one running virtual machine.
type node struct {
	desc  machine.Node
	opts  Options
	setup *wire.Setup

	process *os.Process
	gone    chan struct{} // closed when QEMU has ended and its log is read
	qemu    bytes.Buffer  // what QEMU printed; read it after gone

	conn   *wire.Conn
	stdin  net.Conn
	fed    atomic.Int64 // bytes sent over stdin
	stdout *stream
	stderr *stream
	events chan wire.Message // ready, exit, fatal
	beat   atomic.Int64      // time of the last sign of life, Unix nanoseconds
	step   atomic.Pointer[string]

	logFile string
	logMu   sync.Mutex
	scanner klog.Scanner
	tail    tailWriter
}

// launch starts QEMU for a node.
func (v *VM) launch(desc machine.Node, image string, setup *wire.Setup, cable []*os.File) (*node, error) {
	o := v.opts
	n := &node{
		desc: desc, opts: o, setup: setup,
		gone: make(chan struct{}), events: make(chan wire.Message, 16),
		logFile: filepath.Join(v.Dir, "console-"+desc.Name+".log"),
	}
	p := platforms[o.Kernel.Arch.Name]
	n.scanner.Allow = slices.Concat(o.Allow, p.allow)

	var files []*os.File // QEMU's descriptors from 3 on
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	give := func(f *os.File) int { files = append(files, f); return len(files) + 2 }

	var linkFDs, cables []int
	for range cable {
		cables = append(cables, len(cables)+3)
	}
	linkFDs = cables
	if o.CPUs > 0 && desc.CPUs == 0 && o.Accel != "kvm" {
		desc.CPUs = o.CPUs
	}
	args, err := v.opts.Machine.QEMU(desc, o.Accel, linkFDs)
	if err != nil {
		return nil, err
	}
	extra := append([]*os.File{}, cable...)

	fd := func(f *os.File) int { return give(f) + len(cable) }
	console, theirs, err := channel("console")
	if err != nil {
		return nil, err
	}
	args = append(args, "-chardev", fmt.Sprintf("socket,id=console,fd=%d", fd(theirs)), "-serial", "chardev:console",
		"-device", "virtio-serial-pci,id=gpurdma-serial,bus=pcie.0")
	ports := map[string]net.Conn{}
	for _, p := range []string{wire.PortControl, wire.PortStdin, wire.PortStdout, wire.PortStderr} {
		ours, theirs, err := channel(p)
		if err != nil {
			return nil, err
		}
		ports[p] = ours
		args = append(args, "-chardev", fmt.Sprintf("socket,id=%s,fd=%d", p, fd(theirs)),
			"-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s", p, p))
	}
	var clock []string
	if o.Accel == "tcg" && p.clock != nil {
		clock = p.clock()
	}
	// A comma in a path is doubled for QEMU.
	q := func(path string) string { return strings.ReplaceAll(path, ",", ",,") }
	args = append(args,
		"-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,bus=pcie.0,fsdev=root,mount_tag="+wire.TagRoot,
		"-fsdev", "local,id=results,path="+q(v.Results)+",security_model=none,multidevs=remap",
		"-device", "virtio-9p-pci,bus=pcie.0,fsdev=results,mount_tag="+wire.TagResults,
		"-kernel", o.Kernel.Boot(), "-initrd", image,
		"-append", strings.Join(slices.Concat(p.cmdline(), []string{stallTimeout(o.Slow)}, clock, o.Machine.Cmdline(desc), o.KernelArgs), " "))
	args = append(args, o.ExtraArgs...)

	qemu := QEMU(o.Tree)
	cmd := exec.Command(qemu, args...)
	cmd.Stdout, cmd.Stderr = &n.qemu, &n.qemu
	cmd.ExtraFiles = append(extra, files...)
	// Ctrl-C is for us: we end the machine, after its log is safe. If we
	// are killed, the machine goes too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	text := qemu + " " + quote(args) + "\n"
	if err := os.WriteFile(filepath.Join(v.Dir, "qemu-"+desc.Name+".txt"), []byte(text), 0o644); err != nil {
		return nil, err
	}
	log, err := os.Create(n.logFile)
	if err != nil {
		return nil, err
	}
	o.debugf("node %s: %s", desc.Name, strings.TrimSpace(text))

	started := make(chan error)
	logged := make(chan struct{})
	go func() {
		// The parent-death signal is bound to the thread that starts the
		// process, so the thread has to stay.
		runtime.LockOSThread()
		err := cmd.Start()
		n.process = cmd.Process
		started <- err
		if err == nil {
			cmd.Wait()
			<-logged
			close(n.gone)
		}
	}()
	if err := <-started; err != nil {
		log.Close()
		return nil, err
	}
	n.beat.Store(nowFunc().UnixNano())
	go func() {
		defer close(logged)
		defer log.Close()
		w := io.MultiWriter(log, lockedWriter{&n.logMu, io.MultiWriter(&n.scanner, &n.tail)})
		if o.Log != nil {
			w = io.MultiWriter(w, o.Log)
		}
		io.Copy(w, console)
	}()
	n.conn = wire.NewConn(ports[wire.PortControl])
	n.stdin = ports[wire.PortStdin]
	n.stdout = newStream(ports[wire.PortStdout])
	n.stderr = newStream(ports[wire.PortStderr])
	go n.receive()
	return n, nil
}

// stallTimeout is longer than the kernel's own: emulation on a busy host, and
// more so a kernel that checks itself, takes its time. 300 is the most it allows.
func stallTimeout(slow int) string {
	return fmt.Sprintf("rcupdate.rcu_cpu_stall_timeout=%d", min(60*slow, 300))
}

// receive dispatches the guest's messages.
func (n *node) receive() {
	for {
		m, err := n.conn.Receive()
		if err != nil {
			return // the machine is going; gone says so
		}
		n.beat.Store(nowFunc().UnixNano())
		switch m.Type {
		case wire.Progress:
			n.step.Store(&m.Text)
			n.opts.debugf("node %s: %s", n.desc.Name, m.Text)
		case wire.Hello, wire.Ready, wire.Exited, wire.Fatal:
			n.events <- m
		}
	}
}

// boot brings a launched node to the point where it can run commands.
func (n *node) boot(ctx context.Context) error {
	n.at("starting the kernel")
	limit := time.NewTimer(n.opts.BootLimit)
	defer limit.Stop()
	hello, err := n.await(ctx, limit.C, wire.Hello, fmt.Sprintf("init did not report within %v", n.opts.BootLimit))
	if err != nil {
		return n.unborn(err)
	}
	if hello.Text != n.opts.Kernel.Release {
		return fmt.Errorf("node %s runs kernel %s, not %s", n.desc.Name, hello.Text, n.opts.Kernel.Release)
	}
	if err := n.conn.Send(wire.Message{Type: wire.SetUp, Setup: n.setup}); err != nil {
		return err
	}
	_, err = n.await(ctx, limit.C, wire.Ready, fmt.Sprintf("was not set up within %v", n.opts.BootLimit))
	return err
}

// unborn makes a BootError of an error that kept init from starting, if the kernel may be
// the cause. A QEMU that ends by itself has refused its options, and would refuse them again.
func (n *node) unborn(err error) error {
	var k *KernelError
	var h *HangError
	if n.opts.Accel != "kvm" && (errors.As(err, &k) || errors.As(err, &h)) {
		return &BootError{Err: err}
	}
	return err
}

func (n *node) at(step string) { n.step.Store(&step) }

// await waits for an event of the guest, or for one of the things that can
// happen instead.
func (n *node) await(ctx context.Context, limit <-chan time.Time, want, late string) (wire.Message, error) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case m := <-n.events:
			switch m.Type {
			case want:
				return m, nil
			case wire.Fatal:
				time.Sleep(300 * time.Millisecond) // let the log arrive
				if err := n.faults(); err != nil {
					return m, fmt.Errorf("node %s: init: %s: %w", n.desc.Name, m.Text, err)
				}
				return m, errors.New(withTail(fmt.Sprintf("node %s: init: %s", n.desc.Name, m.Text), n.lastLines(), n.logFile))
			}
		case <-ctx.Done():
			return wire.Message{}, context.Cause(ctx)
		case <-n.gone:
			if err := n.faults(); err != nil {
				return wire.Message{}, err
			}
			return wire.Message{}, &DeathError{Node: n.desc.Name, Stage: "while " + *n.step.Load(),
				QEMU: strings.TrimSpace(n.qemu.String()), Tail: n.lastLines(), LogFile: n.logFile}
		case <-limit:
			return wire.Message{}, n.hung(late)
		case <-tick.C:
			// While init is not up, the boot limit alone counts.
			silent := time.Since(time.Unix(0, n.beat.Load()))
			if want != wire.Hello && silent > n.opts.BeatLimit {
				return wire.Message{}, n.hung(fmt.Sprintf("no sign of life for %v while %s", silent.Round(time.Second), *n.step.Load()))
			}
		}
	}
}

// hung asks a stuck machine for its blocked tasks, so that the log says where
// it hangs, and describes it.
func (n *node) hung(what string) error {
	n.conn.Send(wire.Message{Type: wire.Signal, Signal: int(syscall.SIGQUIT)})
	n.conn.Send(wire.Message{Type: wire.SysRq, Key: "w"})
	select {
	case <-time.After(3 * time.Second):
	case <-n.gone:
	}
	if err := n.faults(); err != nil {
		return fmt.Errorf("node %s: %s: %w", n.desc.Name, what, err)
	}
	return &HangError{Node: n.desc.Name, What: what, Tail: n.lastLines(), LogFile: n.logFile}
}

// faults returns the kernel's fault reports as an error.
func (n *node) faults() error {
	n.logMu.Lock()
	defer n.logMu.Unlock()
	if rs := n.scanner.Reports(); len(rs) > 0 {
		return &KernelError{Node: n.desc.Name, Emulated: n.opts.Accel != "kvm", Reports: rs, LogFile: n.logFile}
	}
	return nil
}

func (n *node) lastLines() []string {
	n.logMu.Lock()
	defer n.logMu.Unlock()
	return n.tail.lines()
}

// ending are faults of kernels that power off, with all their drivers there are.
// virtio's shutdown breaks the queues of a device, and virtio-gpu of Debian's 6.1 and
// 6.12 does not hear of it: it warns of a command that a worker sends afterwards, to
// free a buffer. Newer ones are unplugged by a shutdown of their own.
var ending = regexp.MustCompile(`^WARNING: .* at drivers/gpu/drm/virtio/virtgpu_vq\.c:[0-9]+ virtio_gpu_queue_`)

func (n *node) forgive() {
	n.logMu.Lock()
	defer n.logMu.Unlock()
	n.scanner.AllowFromHere(ending)
}

func (n *node) powerOff() {
	n.at("powering off")
	n.forgive()
	n.conn.Send(wire.Message{Type: wire.PowerOff})
}

func (n *node) waitOff() error {
	limit := offLimit * time.Duration(n.opts.Slow)
	select {
	case <-n.gone:
		return nil
	case <-time.After(limit):
		err := n.hung(fmt.Sprintf("did not power off within %v", limit))
		n.kill()
		return err
	}
}

func (n *node) kill() {
	n.process.Kill()
	<-n.gone
}

// lockedWriter serializes writes with readers of what is written.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// tailWriter keeps the end of a log.
type tailWriter struct{ buf []byte }

const (
	tailBytes = 16 << 10
	tailLines = 40
)

func (t *tailWriter) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailBytes {
		t.buf = append([]byte{}, t.buf[len(t.buf)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tailWriter) lines() []string {
	text := strings.TrimSpace(strings.ReplaceAll(string(t.buf), "\r", ""))
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return lines
}

// quote renders arguments for a shell.
func quote(args []string) string {
	var q []string
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?[]{}()<>|&;~#!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		q = append(q, a)
	}
	return strings.Join(q, " ")
}
