// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/trace"
)

// tracingCost is what records cost the process that traces.
type tracingCost struct {
	Records  int           `json:"records"`
	CPU      time.Duration `json:"cpu_ns"`
	Resident uint64        `json:"resident_bytes"` // at most
	Maps     uint64        `json:"map_bytes"`      // of the kernel, while it traces
}

// costBatch is how many registrations the loop makes before cost waits until the tracer has
// seen them all: its ring has room for as many. The speed at which it must read to lose none
// depends on the machine; the cost of a record does not.
const costBatch = 1000

// cost has a small buffer registered n times and looks at this process: reading
// the events, and little else.
func (b *tracing) cost(ctx context.Context, n int) (*tracingCost, error) {
	l, err := b.startLoop(ctx, "udmabuf", 64*int64(os.Getpagesize()))
	if err != nil {
		return nil, err
	}
	defer l.close()
	tr, err := trace.Open(trace.Config{PIDs: []int{l.pid}, RDMAOnly: true, NoInventory: true})
	if err != nil {
		return nil, err
	}
	w := watchTracer(tr)
	c := &tracingCost{Records: n}
	before, err := cpuTime()
	for done := 0; done < n && err == nil; {
		batch := min(n-done, costBatch)
		done += batch
		if _, err = l.run(batch); err == nil {
			err = w.await(ctx, done)
		}
	}
	if err == nil {
		err = tr.Flush(ctx)
	}
	after, err1 := cpuTime()
	c.CPU = after - before
	var err2, err3 error
	c.Maps, err2 = mapMemory()
	c.Resident, err3 = status("VmHWM:")
	err4 := w.end(ctx, n)
	for _, e := range []error{err, err1, err2, err3, err4} {
		if e != nil {
			return nil, e
		}
	}
	return c, nil
}

// cpuTime is what this process has used.
func cpuTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// status is a line of /proc/self/status that is in kB.
func status(field string) (bytes uint64, err error) {
	return fieldOf("/proc/self/status", field, 1<<10)
}

// mapMemory adds up the memory of the BPF maps that this process has open.
func mapMemory() (bytes uint64, err error) {
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		if id, err := fieldOf(f, "map_id:", 1); err != nil || id == 0 {
			continue // closed meanwhile, or no map
		}
		n, err := fieldOf(f, "memlock:", 1)
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// fieldOf reads a number behind a name, 0 if there is none.
func fieldOf(file, field string, unit uint64) (n uint64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), field); ok {
			_, err := fmt.Sscan(rest, &n)
			return n * unit, err
		}
	}
	return 0, nil
}
