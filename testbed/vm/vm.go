// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/testbed/module"
)

// VM is a booted machine.
type VM struct {
	Dir     string // logs; removed by Close when all went well
	Results string // the directory that the guests see at wire.Results and may write to

	opts  Options
	nodes []*node
	keep  bool
}

// Start boots every node of the machine and returns when all are set up.
//
// If the emulator has Corrupted the machine by then, Start tries once more. It does so,
// too, if a kernel's init did not report: until then a kernel loads Debian's modules only,
// and nothing of the project's has run. Start prints the first
// try's error.
func Start(ctx context.Context, o Options) (*VM, error) {
	return twice(func() (*VM, error) { return start(ctx, o) })
}

func twice(start func() (*VM, error)) (*VM, error) {
	v, err := start()
	switch {
	case Corrupted(err):
		fmt.Fprintf(os.Stderr, "testbed: the emulator corrupted the machine while it booted, trying once more: %s\n", title(err))
	case unborn(err):
		fmt.Fprintf(os.Stderr, "testbed: init did not report, trying once more: %v\n", err)
	default:
		return v, err
	}
	return start()
}

func start(ctx context.Context, o Options) (*VM, error) {
	qemu := QEMU(o.Tree)
	if _, err := exec.LookPath(qemu); err != nil {
		return nil, fmt.Errorf("%s is not installed: run `make setup`: %w", qemu, err)
	}
	if err := static(initProgram(o.Tree)); err != nil {
		return nil, err
	}
	if err := o.Machine.Validate(); err != nil {
		return nil, err
	}
	if o.Accel == "" {
		var err error
		if o.Accel, err = Accel(ctx, o.Tree, o.Kernel); err != nil {
			return nil, err
		}
	}
	if o.BootLimit == 0 {
		o.BootLimit = DefaultBootLimit
	}
	if o.BeatLimit == 0 {
		o.BeatLimit = DefaultBeatLimit
	}
	o.Slow = max(o.Slow, 1)
	o.BootLimit *= time.Duration(o.Slow)
	o.BeatLimit *= time.Duration(o.Slow)
	tree, err := module.OpenTree(o.Kernel.ModuleDir())
	if err != nil {
		return nil, err
	}
	own, err := ownModules(o.Tree.Modules(o.Kernel.Series), o.Kernel)
	if err != nil {
		return nil, err
	}
	switch o.Modules {
	case Rereg:
		core, err := ownModules(o.Tree.Rereg(o.Kernel.Series), o.Kernel)
		if err != nil {
			return nil, err
		}
		if len(core) == 0 {
			return nil, fmt.Errorf("%w: no RDMA core in %s: run `make kernel-rereg KERNEL=%s`",
				ErrNoPatched, o.Tree.Rereg(o.Kernel.Series), o.Kernel.Series)
		}
		maps.Copy(own, core)
	case Stock:
		maps.DeleteFunc(own, func(name string, _ ownModule) bool { return tree.Has(name) })
	case Patched:
		if _, ok := own["rdma_rxe"]; !ok {
			return nil, fmt.Errorf("%w: no rdma_rxe.ko in %s: run `make kernel KERNEL=%s`",
				ErrNoPatched, o.Tree.Modules(o.Kernel.Series), o.Kernel.Series)
		}
	}

	v := &VM{opts: o, Dir: o.RunDir}
	if v.Dir == "" {
		// Several machines start in the same second.
		if err := os.MkdirAll(o.Tree.Runs(), 0o755); err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp(o.Tree.Runs(), fmt.Sprintf("%s-%s-", nowFunc().Format("20060102-150405"), o.Kernel.Series))
		if err != nil {
			return nil, err
		}
		v.Dir = dir
		prune(o.Tree.Runs(), "2*", keepRuns)
	} else {
		v.keep = true
	}
	v.Results = filepath.Join(v.Dir, "results")
	if err := os.MkdirAll(v.Results, 0o755); err != nil {
		return nil, err
	}

	links, err := cables(len(o.Machine.Links))
	if err != nil {
		return nil, err
	}
	defer closeCables(links)
	for i, n := range o.Machine.Nodes {
		early, err := plan(tree, hostModules, nil)
		if err != nil {
			return nil, v.fail(err)
		}
		late, err := plan(tree, n.Modules, own)
		if err != nil {
			return nil, v.fail(fmt.Errorf("machine %s, node %s: %w", o.Machine.Name, n.Name, err))
		}
		image, err := initramfs(o.Tree, o.Kernel.Series, early, late)
		if err != nil {
			return nil, v.fail(err)
		}
		setup, err := o.setup(tree, own, i)
		if err != nil {
			return nil, v.fail(err)
		}
		var ends []*os.File
		for _, e := range o.Machine.LinkEnds(n) {
			ends = append(ends, links[e.Link][e.End])
		}
		nd, err := v.launch(n, image, setup, ends)
		if err != nil {
			return nil, v.fail(err)
		}
		v.nodes = append(v.nodes, nd)
	}
	errs := make([]error, len(v.nodes))
	var wg sync.WaitGroup
	for i, n := range v.nodes {
		wg.Go(func() { errs[i] = n.boot(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, v.fail(err)
	}
	return v, nil
}

// fail ends the machine and keeps its logs.
func (v *VM) fail(err error) error {
	v.keep = true
	v.Kill()
	if len(v.nodes) == 0 {
		os.RemoveAll(v.Dir)
	}
	return err
}

// Keep makes Close leave the logs and results.
func (v *VM) Keep() { v.keep = true }

// Kill ends the machine at once. Logs and results stay.
func (v *VM) Kill() {
	for _, n := range v.nodes {
		n.kill()
	}
}

// Close powers the machine off and reports what its kernels complained about,
// which may be as late as the very end.
func (v *VM) Close() error {
	var errs []error
	for _, n := range v.nodes {
		n.powerOff()
	}
	for _, n := range v.nodes {
		if err := n.waitOff(); err != nil {
			errs = append(errs, err)
		}
		if err := n.faults(); err != nil {
			errs = append(errs, err)
		}
	}
	err := errors.Join(errs...)
	if err == nil && !v.keep {
		return os.RemoveAll(v.Dir)
	}
	return err
}

// Faults reports what the kernels complained about so far.
func (v *VM) Faults() error {
	var errs []error
	for _, n := range v.nodes {
		errs = append(errs, n.faults())
	}
	return errors.Join(errs...)
}

// node returns the node of a name; the empty name is the first node.
func (v *VM) node(name string) (*node, error) {
	var names []string
	for _, n := range v.nodes {
		if name == "" || n.desc.Name == name {
			return n, nil
		}
		names = append(names, n.desc.Name)
	}
	return nil, fmt.Errorf("no node %q: there are %s", name, strings.Join(names, ", "))
}

// cables makes the links: each is a pair of connected sockets, so that no
// port of the host is used.
func cables(n int) ([][2]*os.File, error) {
	var all [][2]*os.File
	for range n {
		a, b, err := socketPair("cable")
		if err != nil {
			closeCables(all)
			return nil, err
		}
		all = append(all, [2]*os.File{a, b})
	}
	return all, nil
}

func closeCables(all [][2]*os.File) {
	for _, c := range all {
		c[0].Close()
		c[1].Close()
	}
}

func socketPair(name string) (*os.File, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// channel is our end of a character device of the machine; theirs goes to
// QEMU.
func channel(name string) (ours net.Conn, theirs *os.File, err error) {
	a, b, err := socketPair(name)
	if err != nil {
		return nil, nil, err
	}
	defer a.Close() // FileConn duplicates it
	if ours, err = net.FileConn(a); err != nil {
		b.Close()
		return nil, nil, err
	}
	return ours, b, nil
}

// offLimit is how long powering off may take.
const offLimit = 20 * time.Second
