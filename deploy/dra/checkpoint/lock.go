// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is the error of a lock that another one has.
var ErrLocked = errors.New("another proof has the lock")

// ProofLock is held while a pair is tried. The kernel releases it when its process ends, however it ends.
type ProofLock struct{ f *os.File }

// TryLock takes the lock of the proofs beside a file of this package. It does not wait: the error is ErrLocked if
// this process or another one has it.
func TryLock(file string) (*ProofLock, error) {
	f, err := os.OpenFile(file+".proof", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		return &ProofLock{f}, nil
	}
	_ = f.Close()
	if err == unix.EWOULDBLOCK {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
}

// Unlock releases the lock.
func (l *ProofLock) Unlock() { _ = l.f.Close() }

// lockEvery is the time between two tries of WaitLock.
const lockEvery = 20 * time.Millisecond

// WaitLock is TryLock that waits until the lock is free, or the context ends.
func WaitLock(ctx context.Context, file string) (*ProofLock, error) {
	for {
		l, err := TryLock(file)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(lockEvery):
		}
	}
}
