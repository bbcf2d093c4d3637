// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/trace"
)

// script is a bpftrace program on the functions that our tracing hooks. It prints the
// course of a registration as an engineer's own script would: a line for each return,
// with its value and the time, and a line for the call of a function whose return we do
// not hook.
type script struct {
	probes string // of one process: $1 is its number
	lines  int    // of one registration and deregistration, once it is known
}

// The lines of the two functions whose types bpftrace knows. They print more than the
// value: without these fields the output does not show where the bytes are.
const (
	// The exporter and the importing device.
	attachLine = `printf("%llu %d dma_buf_dynamic_attach %lld %s %llu %s\n", nsecs, tid, (int64)retval, ` +
		`str(args->dmabuf->exp_name), args->dmabuf->size, str(args->dev->kobj.name));`
	// How many bytes are mapped, and between which addresses: by the scatter list,
	// whose entries have 32 bytes. More than 64 would be in several chunks, whose
	// chain makes the loop too long for the verifier.
	mapLine = `$t = retval; $sg = $t->sgl; $n = $t->nents; ` +
		`$i = (uint64)0; $bytes = (uint64)0; $low = (uint64)0; $high = (uint64)0; ` +
		`while ($i < 64) { if ($i >= $n) { break; } ` +
		`$at = (uint64)$sg->dma_address; $size = (uint64)$sg->dma_length; $bytes = $bytes + $size; ` +
		`if ($i == 0 || $at < $low) { $low = $at; } if ($at + $size > $high) { $high = $at + $size; } ` +
		`$sg = (struct scatterlist *)((uint64)$sg + 32); $i = $i + 1; } ` +
		`printf("%llu %d dma_buf_map_attachment %lld %llu %llx %llx\n", nsecs, tid, (int64)retval, $bytes, $low, $high);`
)

// newScript makes the script from the hooks that our tracing has in place here. It
// reads scatter lists if lists is set.
func newScript(lists bool) (*script, error) {
	if _, err := exec.LookPath("bpftrace"); err != nil {
		return nil, fmt.Errorf("%w (testbed/setup.sh bench installs it)", err)
	}
	tr, err := trace.Open(trace.Config{PIDs: []int{os.Getpid()}, NoInventory: true})
	if err != nil {
		return nil, err
	}
	hooks := tr.Hooks()
	if err := tr.Close(); err != nil {
		return nil, err
	}
	return &script{probes: probesFor(hooks, lists)}, nil
}

// probesFor writes the probes. bpftrace reads the types of the kernel and not
// those of modules: functions of modules get kprobes.
func probesFor(hooks []trace.Hook, lists bool) string {
	returns := map[string]bool{}
	for _, h := range hooks {
		if h.How == "fexit" || h.How == "kretprobe" {
			returns[h.Function] = true
		}
	}
	var b strings.Builder
	for _, h := range hooks {
		kind := "kfunc"
		if h.Module != "" || h.How == "kprobe" || h.How == "kretprobe" {
			kind = "kprobe"
		}
		switch h.How {
		case "fentry", "kprobe":
			fmt.Fprintf(&b, "%s:%s /pid == $1/ { ", kind, h.Function)
			if returns[h.Function] {
				fmt.Fprintln(&b, "}") // its return says it all
			} else {
				fmt.Fprintf(&b, "printf(\"%%llu %%d %s\\n\", nsecs, tid); }\n", h.Function)
			}
		case "fexit", "kretprobe":
			line := fmt.Sprintf(`printf("%%llu %%d %s %%lld\n", nsecs, tid, (int64)retval);`, h.Function)
			switch {
			case h.Function == "dma_buf_dynamic_attach" && kind == "kfunc":
				line = attachLine
			case h.Function == "dma_buf_map_attachment" && kind == "kfunc" && lists:
				line = mapLine
			}
			fmt.Fprintf(&b, "%s:%s /pid == $1/ { %s }\n", map[string]string{"kfunc": "kretfunc", "kprobe": "kretprobe"}[kind], h.Function, line)
		}
	}
	return b.String()
}

// running is a bpftrace at work.
type running struct {
	cmd   *exec.Cmd
	said  bytes.Buffer // on stderr
	lines atomic.Int64
	done  chan error
}

// attachWithin bounds how long bpftrace may take to attach; under emulation it
// compiles for many seconds.
const attachWithin = 5 * time.Minute

// start runs the script on a process and returns when it reports all that the
// process does.
func (s *script) start(ctx context.Context, l *loop) (*running, error) {
	r := &running{cmd: exec.CommandContext(ctx, "bpftrace", "-B", "line", "-e", s.probes, strconv.Itoa(l.pid)), done: make(chan error, 1)}
	r.cmd.Env = append(os.Environ(), "BPFTRACE_PERF_RB_PAGES=4096") // no lost lines: bpftrace would not pay for them
	r.cmd.Stderr = &r.said
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	// It inherited the one processor of the loops; our reader has its choice too.
	all := everyCPU()
	if err := unix.SchedSetaffinity(r.cmd.Process.Pid, &all); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if sc.Text() != "" && sc.Text()[0] >= '0' && sc.Text()[0] <= '9' {
				r.lines.Add(1)
			}
		}
		r.done <- r.cmd.Wait()
	}()
	// Attached one by one, the probes are complete once a registration says the
	// same three times in a row.
	same, before := 0, int64(-1)
	for end := time.Now().Add(attachWithin); same < 3; {
		select {
		case err := <-r.done:
			return nil, fmt.Errorf("bpftrace ended: %v: %s", err, tailOf(r.said.String()))
		case <-time.After(300 * time.Millisecond):
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("bpftrace has not attached in %v", attachWithin), r.stop())
		}
		n, err := r.count(l)
		if err != nil {
			return nil, errors.Join(err, r.stop())
		}
		switch {
		case n == 0 || n != before:
			same = 0
		case s.lines == 0 || int64(s.lines) == n:
			same++
		}
		before = n
	}
	s.lines = int(before)
	return r, nil
}

func everyCPU() (s unix.CPUSet) {
	for cpu := range len(s) * 64 {
		s.Set(cpu)
	}
	return s
}

// count is how many lines one registration and deregistration makes.
func (r *running) count(l *loop) (int64, error) {
	before := r.lines.Load()
	if _, err := l.run(1); err != nil {
		return 0, err
	}
	for settled := before; ; {
		time.Sleep(200 * time.Millisecond)
		n := r.lines.Load()
		if n == settled {
			return n - before, nil
		}
		settled = n
	}
}

// settle waits until nothing is printed any more.
func (r *running) settle() {
	for last := int64(-1); last != r.lines.Load(); time.Sleep(time.Second) {
		last = r.lines.Load()
	}
}

// stop ends bpftrace.
func (r *running) stop() error {
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return <-r.done
}

// tailOf is the end of what bpftrace said.
func tailOf(text string) string {
	const most = 500
	return text[max(0, len(text)-most):]
}

// scriptTurn is tracedTurn with bpftrace.
func (b *tracing) scriptTurn(ctx context.Context, t *turns, l *loop, n int) error {
	r, err := b.script.start(ctx, l)
	if err != nil {
		return err
	}
	before := r.lines.Load()
	_, warm := l.run(warmPasses)
	t.bpftraced, err = turn(l, n, new(samples))
	if err == nil {
		r.settle() // an end throws away what was not read
	}
	if err := errors.Join(warm, err, r.stop()); err != nil {
		return err
	}
	if got, want := r.lines.Load()-before, int64(b.script.lines*(n+warmPasses)); got != want {
		return fmt.Errorf("bpftrace printed %d of %d lines: %s", got, want, tailOf(r.said.String()))
	}
	return nil
}
