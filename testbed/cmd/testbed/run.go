// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpurdma/gpurdma/testbed/machine"
	"github.com/gpurdma/gpurdma/testbed/vm"
)

// bootFlags are the flags of every command that boots a machine.
type bootFlags struct {
	kernel, machine    string
	stock, patched     bool
	rereg              bool
	verbose, showLog   bool
	keep               bool
	timeout            time.Duration
	slow, cpus         int
	count              bool
	allow, kernelArgs  listFlag
	qemuArgs, exposeds listFlag
}

// listFlag is a flag that may be given several times.
type listFlag []string

func (l *listFlag) String() string     { return strings.Join(*l, " ") }
func (l *listFlag) Set(s string) error { *l = append(*l, s); return nil }

func (b *bootFlags) register(fs *flag.FlagSet, timeout time.Duration) {
	fs.StringVar(&b.kernel, "kernel", defaultKernel(), "kernel `series`")
	fs.StringVar(&b.machine, "machine", "default", "machine: a `name` ("+strings.Join(machine.Names(), ", ")+") or a JSON file")
	fs.BoolVar(&b.stock, "stock-rxe", false, "use Debian's own modules although patched ones are built")
	fs.BoolVar(&b.patched, "patched-rxe", false, "fail when the patched rdma_rxe is not built")
	fs.BoolVar(&b.rereg, "rereg", false, "use the RDMA core of kernel/patches/rdma-rereg, and rdma_rxe with it")
	fs.BoolVar(&b.verbose, "v", false, "say what happens while booting")
	fs.BoolVar(&b.showLog, "log", false, "copy the kernel's log to standard error")
	fs.BoolVar(&b.keep, "keep", false, "keep the logs and results of a run that went well")
	fs.DurationVar(&b.timeout, "timeout", timeout, "end a command that takes longer")
	fs.IntVar(&b.slow, "slow", defaultSlow(), "multiply all limits of time by `N`, for a kernel that checks itself; GPURDMA_SLOW in the guest")
	fs.IntVar(&b.cpus, "cpus", 0, "processors where they are emulated and the machine does not say how many; 0: 2")
	fs.BoolVar(&b.count, "count", false, "where processors are emulated, let clocks count instructions, one a nanosecond; GPURDMA_COUNT=1 in the guest")
	fs.Var(&b.allow, "allow", "`regexp` of kernel reports that are provoked on purpose (repeatable)")
	fs.Var(&b.kernelArgs, "kernel-arg", "`argument` for the guest's kernel (repeatable)")
	fs.Var(&b.qemuArgs, "qemu-arg", "`argument` for QEMU (repeatable)")
}

// options turns the flags into what vm.Start wants, fetching the kernel if
// there is none.
func (b *bootFlags) options(ctx context.Context) (vm.Options, error) {
	var o vm.Options
	if b.stock && (b.patched || b.rereg) {
		return o, errors.New("-stock-rxe excludes -patched-rxe and -rereg")
	}
	t, err := findTree()
	if err != nil {
		return o, err
	}
	m, err := machine.Load(t.Arch.Name, b.machine)
	if err != nil {
		return o, err
	}
	k, err := ensureKernel(ctx, t, b.kernel)
	if err != nil {
		return o, err
	}
	wd, err := os.Getwd()
	if err != nil {
		return o, err
	}
	if b.cpus < 0 {
		return o, fmt.Errorf("-cpus %d: negative", b.cpus)
	}
	if b.slow < 1 {
		return o, fmt.Errorf("-slow %d: at least 1", b.slow)
	}
	o = vm.Options{
		Tree: t, Kernel: k, Machine: m, Slow: b.slow, CPUs: b.cpus,
		Expose:     append([]string{wd}, b.exposeds...),
		KernelArgs: b.kernelArgs, ExtraArgs: b.qemuArgs,
	}
	if b.count {
		if o.Accel, err = vm.Accel(ctx, t, k); err != nil {
			return o, err
		}
		if o.Accel == "tcg" {
			o.Accel = "icount"
		}
	}
	switch {
	case b.stock:
		o.Modules = vm.Stock
	case b.rereg:
		o.Modules = vm.Rereg
	case b.patched:
		o.Modules = vm.Patched
	}
	for _, a := range b.allow {
		re, err := regexp.Compile(a)
		if err != nil {
			return o, fmt.Errorf("-allow: %w", err)
		}
		o.Allow = append(o.Allow, re)
	}
	if b.verbose {
		o.Debug = logf
	}
	if b.showLog {
		o.Log = os.Stderr
	}
	return o, nil
}

// limit is a limit of time on this kernel.
func (b *bootFlags) limit(d time.Duration) time.Duration { return d * time.Duration(b.slow) }

// environ is the environment of commands in the guest: little of the host's,
// so that runs are alike on different hosts, and the project's binaries on
// the PATH.
func environ(o vm.Options) []string {
	env := []string{
		"PATH=" + strings.Join([]string{
			o.Tree.Bin(), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", goBin(),
		}, ":"),
		"HOME=/root", "LANG=C.UTF-8", "SHELL=/bin/bash", "USER=root", "LOGNAME=root",
		"GPURDMA_TESTBED=1",
		"GPURDMA_KERNEL=" + o.Kernel.Series,
		"GPURDMA_MACHINE=" + o.Machine.Name,
		"GPURDMA_RESULTS=" + guestResults,
		"GPURDMA_SLOW=" + strconv.Itoa(max(o.Slow, 1)),
	}
	if o.Modules == vm.Stock {
		env = append(env, "GPURDMA_STOCK_RXE=1")
	}
	if o.Modules == vm.Rereg {
		env = append(env, "GPURDMA_REREG=1")
	}
	if o.Accel == "icount" {
		env = append(env, "GPURDMA_COUNT=1")
	}
	if t := os.Getenv("TERM"); t != "" {
		env = append(env, "TERM="+t)
	}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case name == "GPURDMA_KERNEL", name == "GPURDMA_TESTBED", name == "GPURDMA_MACHINE", name == "GPURDMA_RESULTS", name == "GPURDMA_STOCK_RXE", name == "GPURDMA_REREG", name == "GPURDMA_SLOW", name == "GPURDMA_COUNT":
		case strings.HasPrefix(name, "GPURDMA_"), passed[name]:
			env = append(env, e)
		}
	}
	return env
}

// passed are the variables of Go's run time that tests may be run with.
var passed = map[string]bool{
	"GORACE": true, "GODEBUG": true, "GOTRACEBACK": true, "GOMAXPROCS": true, "GOGC": true, "GOMEMLIMIT": true,
}

// goBin is the directory of the go command, or one that does not exist.
func goBin() string {
	if root := os.Getenv("GOROOT"); root != "" {
		return filepath.Join(root, "bin")
	}
	return "/usr/local/go/bin"
}

func runRun(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("testbed run", flag.ContinueOnError)
	var b bootFlags
	b.register(fs, 10*time.Minute)
	node := fs.String("node", "", "`node` to run on; the first by default")
	peer := fs.String("peer", "", "shell `command` to run meanwhile on the machine's second node")
	stdin := fs.Bool("stdin", false, "forward standard input")
	results := fs.String("results", "", "`directory` to copy into what the command leaves in $GPURDMA_RESULTS")
	again := fs.Bool("again", false, "run the command once more in a new machine if the emulator has corrupted the first")
	if err := fs.Parse(args); err != nil {
		return 0, err
	}
	if fs.NArg() == 0 {
		return 0, errors.New("no command: testbed run [flags] -- COMMAND [ARGUMENT...]")
	}
	o, err := b.options(ctx)
	if err != nil {
		return 0, err
	}
	wd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	c := vm.Cmd{Node: *node, Args: fs.Args(), Dir: wd, Env: environ(o), Stdout: os.Stdout, Stderr: os.Stderr, Timeout: b.limit(b.timeout)}
	if *stdin {
		c.Stdin = os.Stdin
	}
	status, err := b.runOnce(ctx, o, c, *peer, *results)
	if *again && vm.Corrupted(err) && ctx.Err() == nil {
		fmt.Println(onceMore)
		logf("the first machine's error: %v", err)
		status, err = b.runOnce(ctx, o, c, *peer, *results)
	}
	return outcome(status, err)
}

// onceMore is printed between the two runs of a command or a job. The output of the first does not count.
const onceMore = "testbed: the emulator corrupted the machine, which counts for nothing; once more in another one"

// runOnce runs a command in a new machine.
func (b *bootFlags) runOnce(ctx context.Context, o vm.Options, c vm.Cmd, peer, results string) (int, error) {
	v, err := vm.Start(ctx, o)
	if err != nil {
		return 0, err
	}
	if b.keep {
		v.Keep()
		logf("keeping %s", v.Dir)
	}
	status, err := runWithPeer(ctx, v, o, c, peer)
	if err == nil && results != "" {
		err = os.CopyFS(results, os.DirFS(v.Results))
	}
	return closeAfter(v, status, err)
}

// runWithPeer runs a command, and another on the second node until the first
// has ended.
func runWithPeer(ctx context.Context, v booted, o vm.Options, c vm.Cmd, peer string) (int, error) {
	if peer == "" {
		return v.Run(ctx, c)
	}
	if len(o.Machine.Nodes) < 2 {
		return 0, fmt.Errorf("-peer: machine %s has one node", o.Machine.Name)
	}
	second := o.Machine.Nodes[1].Name
	done := make(chan error, 1)
	var out strings.Builder
	both := &syncWriter{w: &out}
	printed := func() string {
		both.mu.Lock()
		defer both.mu.Unlock()
		return out.String()
	}
	go func() {
		p := c
		p.Node, p.Args, p.Stdin = second, []string{"/bin/sh", "-c", peer}, nil
		p.Stdout, p.Stderr = both, both
		st, err := v.Run(ctx, p)
		if err == nil && st != 0 {
			err = fmt.Errorf("the peer's command ended with status %d", st)
		}
		if err != nil { // at once: the main command may wait for the peer until its time is over
			fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
		}
		done <- err
	}()
	status, err := v.Run(ctx, c)
	if err != nil {
		fmt.Fprintf(os.Stderr, "testbed: the peer printed:\n%s", printed())
		return status, err // no command can run on the machine now
	}
	select {
	case perr := <-done:
		if perr != nil {
			status = max(status, 1)
		}
	case <-time.After(peerGrace):
		// The peer may be a server that waits for more clients: it is ended.
		if err := v.Signal(second, syscall.SIGKILL); err != nil {
			return status, err
		}
		<-done
	}
	if status != 0 {
		fmt.Fprintf(os.Stderr, "testbed: the peer printed:\n%s", printed())
	}
	return status, nil
}

// peerGrace is how long a peer's command may go on after the main one.
const peerGrace = 2 * time.Second

// finish closes a machine after its last command and maps what happened to an
// exit status.
func finish(v *vm.VM, status int, err error) (int, error) { return outcome(closeAfter(v, status, err)) }

// closeAfter closes a machine after its last command.
func closeAfter(v *vm.VM, status int, err error) (int, error) {
	if err != nil {
		v.Kill()
		return status, err
	}
	if err := v.Faults(); err != nil {
		// Keep the machine's last words too.
		return status, errors.Join(v.Close())
	}
	return status, v.Close()
}

// outcome is the exit status for an error of the vm package.
func outcome(status int, err error) (int, error) {
	var k *vm.KernelError
	var h *vm.HangError
	switch {
	case err == nil:
		return status, nil
	case errors.As(err, &k):
		if status != 0 {
			err = fmt.Errorf("the command ended with status %d: %w", status, err)
		}
		return statusKernel, err
	case errors.As(err, &h):
		return statusWatchdog, err
	case errors.Is(err, context.Canceled):
		return statusInterrupted, errors.New("interrupted")
	}
	return statusTestbed, err
}
