// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unboundWorkers says on which processors workers of the kernel may run that have none
// of their own: rxe's are such, from Linux 6.4 on.
const unboundWorkers = "/sys/devices/virtual/workqueue/cpumask"

// withWorkers runs f while these workers are on the processor of a client, the last.
//
// On another one, rxe's falls asleep about as long after it has told of a completion as a
// client takes to post its next READ. Who is in time saves a third of the latency, which
// is waking it up. A client in C is at the edge of that: in some boots most of its READs
// are in time and in others few, and 100 instructions more between completion and READ
// are too many in all of them (docs/bench.md). On one processor the client goes on when
// the worker sleeps, and the comparison is of the two programs.
func withWorkers(f func() (float64, error)) (v float64, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, fmt.Errorf("sched_getaffinity: %w", err)
	}
	before, err := os.ReadFile(unboundWorkers)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(unboundWorkers, []byte(cpuMask(end(allowed, true))), 0); err != nil {
		return 0, fmt.Errorf("%w; be root, or leave rxe's worker to the scheduler with -free-worker", err)
	}
	defer func() { err = errors.Join(err, os.WriteFile(unboundWorkers, before, 0)) }()
	return f()
}

// cpuMask is one processor as the kernel reads it: words of 32 bits, the highest first.
func cpuMask(cpu int) string {
	return fmt.Sprintf("%08x", uint32(1)<<(cpu%32)) + strings.Repeat(",00000000", cpu/32)
}
