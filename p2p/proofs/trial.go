// SPDX-License-Identifier: Apache-2.0

package proofs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Trial is a pair that was tried, with its circumstances directly before and after.
type Trial struct {
	Pair          p2p.Pair
	Before, After Circumstances
}

// Changed returns the name of a circumstance that has changed while the pair was tried; "" if there is none.
func (t Trial) Changed() string { return t.After.ChangedDuring(t.Before) }

// Try tries a pair that was judged by m, adds the proof to it, and makes the verdict again. open opens the
// machine in its present state, and prove makes the proof. If a circumstance changes meanwhile, the proof has
// no outcome. If prove returns nil, the pair does not change, and ok is false.
func Try(m *machine.Machine, p *p2p.Pair, open func() *machine.Machine, prove func(p2p.Pair) *p2p.Proof) (t Trial, ok bool) {
	t = Trial{Before: Observe(open(), *p)}
	proof := prove(*p)
	if proof == nil {
		return Trial{}, false
	}
	t.After = Observe(open(), *p)
	if name := t.Changed(); name != "" {
		proof.Void("%s changed while the pair was tried", name)
	}
	p.Prove(m, proof)
	t.Pair = *p
	return t, true
}

// Add adds the proofs of pairs that were tried on m to a file. replace writes the file, as a whole or not at
// all. Several processes may add to a file at once, because Add locks the file's directory (flock). If the file does
// not exist, Add makes it. If it cannot be read, Add returns an error, and does not call replace.
func Add(file string, m *machine.Machine, trials []Trial, now time.Time, replace func(data []byte) error) error {
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return fmt.Errorf("keep the proofs: %w", err)
	}
	defer dir.Close() // which unlocks it
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("keep the proofs: %w", os.NewSyscallError("flock", err))
	}
	s, err := ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the proofs: %w", err)
	}
	var b bytes.Buffer
	if err := errors.Join(s.Keep(m, trials, now), s.Write(&b)); err != nil {
		return fmt.Errorf("keep the proofs: %w", err)
	}
	return replace(b.Bytes())
}

// ReadFile is Read for a file. If the file does not exist, the error is fs.ErrNotExist.
func ReadFile(name string) (Store, error) {
	f, err := os.Open(name)
	if err != nil {
		return Store{}, err
	}
	defer f.Close()
	s, err := Read(f)
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}
