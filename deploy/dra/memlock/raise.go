// SPDX-License-Identifier: Apache-2.0

package memlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"golang.org/x/sys/unix"
)

// Limit is a number of bytes.
type Limit uint64

// Unlimited is the limit of those who may lock all memory, RLIM_INFINITY.
const Unlimited Limit = math.MaxUint64

// String is the limit as an argument of the hook.
func (l Limit) String() string {
	if l == Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(uint64(l), 10)
}

// ParseLimit reads an argument of the hook.
func ParseLimit(s string) (Limit, error) {
	if s == Unlimited.String() {
		return Unlimited, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no limit: give a number of bytes, or %v", s, Unlimited)
	}
	return Limit(n), nil
}

// mostState is larger than the state of any container: Kubernetes allows 256 KiB of annotations.
const mostState = 4 << 20

// Container is what the runtime says of a container that it makes (the state of the OCI runtime specification).
type Container struct {
	ID  string `json:"id"`
	PID int    `json:"pid"`
}

// ReadContainer reads the state that a runtime gives to a hook.
func ReadContainer(r io.Reader) (c Container, err error) {
	text, err := io.ReadAll(io.LimitReader(r, mostState+1))
	switch {
	case err != nil:
		return c, fmt.Errorf("read the state of the container: %w", err)
	case len(text) > mostState:
		return c, fmt.Errorf("the state of the container is longer than %d bytes", mostState)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("the state of the container is not as a runtime writes it: %w", err)
	}
	if c.PID < 1 || c.PID > math.MaxInt32 {
		return c, fmt.Errorf("the state of the container has the process ID %d: its stage is not createRuntime, or it has ended", c.PID)
	}
	return c, nil
}

// Raise raises the limit of a process, and lowers none.
func Raise(pid int, to Limit) error {
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &was); err != nil {
		return failed(pid, err)
	}
	now := unix.Rlimit{Cur: max(was.Cur, uint64(to)), Max: max(was.Max, uint64(to))}
	if now == was {
		return nil
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &now, nil); err != nil {
		return failed(pid, fmt.Errorf("from %v to %v: %w", Limit(was.Max), to, err))
	}
	return nil
}

func failed(pid int, err error) error {
	err = fmt.Errorf("raise RLIMIT_MEMLOCK of process %d: prlimit: %w", pid, err)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w; the hook needs CAP_SYS_RESOURCE, and has what the container's runtime has", err)
	}
	return err
}
