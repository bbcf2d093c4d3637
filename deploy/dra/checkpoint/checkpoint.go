// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/internal/wholefile"
)

// Schema is of the file.
const Schema = "dra-p2p/v1"

// Device is a device of a claim.
type Device struct {
	Request string       `json:"request"`
	Admin   bool         `json:"admin,omitempty"` // for a look at a device that others may have: it is not taken
	Pool    string       `json:"pool"`
	Name    string       `json:"name"`
	Pairs   []pairs.Pair `json:"pairs"`
	// OnlyNIC says that another driver gives the GPU. A pair without a GPU is then a NIC alone.
	OnlyNIC bool `json:"only_nic,omitempty"`
}

// Claim is a claim that was prepared.
type Claim struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Boot      string   `json:"boot,omitempty"` // in which it was prepared
	Devices   []Device `json:"devices"`
}

// State is what the driver must not forget.
type State struct {
	Schema string           `json:"schema"`
	Boot   string           `json:"boot"`
	Claims map[string]Claim `json:"claims"` // by UID
	// Known are the pairs of each device that was published, by the device's name: a pod may be given one that is
	// not offered any more.
	Known map[string][]pairs.Pair `json:"known"`
	// NICs are the IDs of the NICs that were published by themselves.
	NICs  []string `json:"nics,omitempty"`
	Swept string   `json:"swept"` // the boot in which Sweep was done last
	// Proving is the pair that a process tries, which has the lock of TryLock; nil if none does.
	Proving *pairs.Pair `json:"proving,omitempty"`
}

// Read reads a file; without one, no claim was prepared. boot is the ID of this start of the machine. Claims and
// devices of an earlier start are read, because the scheduler has not forgotten them.
func Read(file, boot string) (*State, error) {
	s := &State{Schema: Schema, Boot: boot, Claims: map[string]Claim{}, Known: map[string][]pairs.Pair{}, Swept: boot}
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, err
	}
	var was State
	if err := json.Unmarshal(text, &was); err != nil {
		return nil, fmt.Errorf("%s: %w; it is not what this driver has written: if no pod of the node has a claim of this driver, remove the file", file, err)
	}
	if was.Schema != Schema {
		return nil, fmt.Errorf("%s has the schema %q, and this driver reads %s: if no pod of the node has a claim of this driver, remove the file", file, was.Schema, Schema)
	}
	for uid, c := range was.Claims {
		c.Boot = cmp.Or(c.Boot, was.Boot)
		s.Claims[uid] = c
	}
	s.NICs = was.NICs
	if was.Known != nil {
		s.Known = was.Known
	}
	s.Swept = cmp.Or(was.Swept, was.Boot)
	if was.Boot == boot {
		s.Proving = was.Proving
	}
	return s, nil
}

// Change reads a file, changes the state, and writes it. Two processes, as while the driver is updated, do so one
// after the other. After an error of f the file has what it had.
func Change(file, boot string, f func(*State) error) error {
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks it
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	s, err := Read(file, boot)
	if err == nil {
		err = f(s)
	}
	if err != nil {
		return err
	}
	return s.Write(file)
}

// Write replaces a file. After a failure, or if the machine fails meanwhile, the file has what it had.
func (s *State) Write(file string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Replace(file, text, 0o600)
}

// Taken is what pods have.
func (s *State) Taken() (t pairs.Taken) {
	for _, c := range s.Claims {
		for _, d := range c.Devices {
			if d.Admin {
				continue
			}
			if len(d.Pairs) == 1 {
				t.Pairs = append(t.Pairs, d.Pairs[0])
			} else {
				t.Sets = append(t.Sets, d.Pairs)
			}
		}
	}
	return t
}
