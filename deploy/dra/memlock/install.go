// SPDX-License-Identifier: Apache-2.0

package memlock

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpurdma/gpurdma/internal/wholefile"
)

// Program is the name of the hook's program, cmd/dra-p2p-memlock.
const Program = "dra-p2p-memlock"

// Off is the value of a flag for no hook.
const Off = "off"

// ParseFlag reads a limit as Kubernetes writes quantities: "64Gi". It is 0 for Off.
func ParseFlag(s string) (Limit, error) {
	switch s {
	case Off:
		return 0, nil
	case Unlimited.String():
		return Unlimited, nil
	}
	q, err := resource.ParseQuantity(s)
	n, whole := q.AsInt64()
	if err != nil || !whole || n < 1 {
		return 0, fmt.Errorf("%q is no limit: give a quantity as 64Gi, %v, or %s", s, Unlimited, Off)
	}
	return Limit(n), nil
}

// ErrNoProgram is the error of a hook whose program is not there.
var ErrNoProgram = errors.New("the program of the hook is not there")

// Install copies the hook's program from a directory to another one, which has the same name on the host, and
// returns the hook for CDI. The runtime executes it on the host, outside of this pod's image: it must be static.
func Install(from, to string, limit Limit) (*specs.Hook, error) {
	program, err := os.ReadFile(filepath.Join(from, Program))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	if err != nil {
		return nil, err
	}
	if err := static(program); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(from, Program), err)
	}
	at := filepath.Join(to, Program)
	if err := wholefile.Replace(at, program, 0o755); err != nil {
		return nil, fmt.Errorf("install the hook: %w", err)
	}
	return &specs.Hook{HookName: "createRuntime", Path: at, Args: []string{Program, limit.String()}}, nil
}

// static returns an error for a program that needs libraries.
func static(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("it is no program: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it is not static, and the host may not have its libraries: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
