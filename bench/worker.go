// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Where rxe's worker runs, for a row of the table.
const (
	workerAnywhere = "as scheduled"
	workerBeside   = "beside the client"
)

// unboundWorkers says on which processors unbound workers of the kernel may run. rxe has
// such from Linux 6.5 on, and tasklets before.
const unboundWorkers = "/sys/devices/virtual/workqueue/cpumask"

// workersMovable is nil if withWorkersAt can be used for rxe.
func workersMovable() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel %s: %w", unix.ByteSliceToString(u.Release[:]), err)
	}
	if major < 6 || major == 6 && minor < 5 {
		return fmt.Errorf("rxe of Linux %d.%d has no worker", major, minor)
	}
	f, err := os.OpenFile(unboundWorkers, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w; it takes root, and a sysfs that can be written to", err)
	}
	return f.Close()
}

// besideClient runs f with rxe's worker on the processor that clients are started on.
func besideClient(f func() (float64, error)) (float64, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, fmt.Errorf("sched_getaffinity: %w", err)
	}
	return withWorkersAt(unboundWorkers, end(allowed, true), f)
}

// withWorkersAt runs f while all unbound workers are on one processor, and restores file
// afterwards, also if f fails. Another process that calls it waits.
func withWorkersAt(file string, cpu int, f func() (float64, error)) (v float64, err error) {
	lock, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer lock.Close() // and unlock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return 0, fmt.Errorf("flock(%s): %w", file, err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	defer func() {
		if back := os.WriteFile(file, before, 0); back != nil {
			err = errors.Join(err, fmt.Errorf("%w: unbound workers stay on processor %d; it was %q", back, cpu, strings.TrimSpace(string(before))))
		}
	}()
	if err := os.WriteFile(file, []byte(cpuMask(cpu)), 0); err != nil {
		return 0, err
	}
	return f()
}

// cpuMask is one processor as the kernel reads it: words of 32 bits, the highest first.
func cpuMask(cpu int) string {
	return fmt.Sprintf("%08x", uint32(1)<<(cpu%32)) + strings.Repeat(",00000000", cpu/32)
}
