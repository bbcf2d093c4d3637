// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/testbed/initrd"
)

// loadModules loads the modules of one kind from the initramfs, in the order
// of its list, and frees their memory there.
func loadModules(kind string) error {
	list, err := os.ReadFile(initrd.ListPath)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		k, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if k != kind {
			continue
		}
		file, params, _ := strings.Cut(rest, " ")
		path := filepath.Join(initrd.ModuleDir, file)
		if err := loadModule(path, strings.TrimSpace(params)); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func loadModule(path, params string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), params, 0)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("loading module %s %s: %w (the kernel's log says more)", filepath.Base(path), params, err)
	}
	return nil
}
