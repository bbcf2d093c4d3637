// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/placement"
)

// Power says whether runtime power management has put a function to sleep.
type Power int

// The states. A function without runtime power management is awake.
const (
	PowerAwake Power = iota
	PowerSuspended
	PowerUnknown
)

// PowerAt returns the power state of the function with this directory below sys, such as
// "bus/pci/devices/0000:03:00.0". Without the file it is PowerAwake if the kernel has no power management, and
// PowerUnknown if a copy may lack the file.
func (m *Machine) PowerAt(dir string) Power {
	r := m.Read("sys", dir, "power/runtime_status")
	if r.Gone() && !m.Sys.Exists(path.Join(dir, "power")) && !m.WholeSys() {
		return PowerUnknown
	}
	return powerOf(r)
}

func powerOf(r Reading) Power {
	switch {
	case r.Gone():
		return PowerAwake
	case r.Err != nil:
		return PowerUnknown
	}
	switch r.Text {
	case "active", "resuming", "unsupported":
		return PowerAwake
	case "suspended", "suspending":
		return PowerSuspended
	}
	return PowerUnknown
}

// OutOfTree says whether a driver's module is not part of the kernel's source: its
// taint then has O. A driver that is built in has no taint file: the answer is No if the
// configuration or modules.builtin has it.
func (m *Machine) OutOfTree(driver string) placement.Answer {
	return Once(m, "out of tree: "+driver+" on "+m.Kernel.Release, func() placement.Answer { return m.outOfTree(driver) })
}

func (m *Machine) outOfTree(driver string) placement.Answer {
	module := ModuleOf(driver)
	dir := path.Join("module", module)
	if driver == "" || !m.Sys.Exists(dir) {
		return placement.AnswerUnknown
	}
	taint, err := m.Taint(module)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !m.Sys.Exists(path.Join(dir, "initstate")) && m.builtIn(module):
		return placement.No
	case err != nil:
		return placement.AnswerUnknown
	case strings.Contains(taint, "O"):
		return placement.Yes
	}
	return placement.No
}

// builtOptions are the configuration options of the kernel's own drivers.
var builtOptions = map[string]string{
	"amdgpu": "CONFIG_DRM_AMDGPU", "xe": "CONFIG_DRM_XE", "i915": "CONFIG_DRM_I915", "nouveau": "CONFIG_DRM_NOUVEAU", "ast": "CONFIG_DRM_AST",
	"vfio_pci": "CONFIG_VFIO_PCI", "habanalabs": "CONFIG_DRM_ACCEL_HABANALABS",
	"mlx5_ib": "CONFIG_MLX5_INFINIBAND", "mlx4_ib": "CONFIG_MLX4_INFINIBAND", "efa": "CONFIG_INFINIBAND_EFA", "bnxt_re": "CONFIG_INFINIBAND_BNXT_RE",
	"irdma": "CONFIG_INFINIBAND_IRDMA", "mana_ib": "CONFIG_MANA_INFINIBAND", "ionic_rdma": "CONFIG_INFINIBAND_IONIC", "erdma": "CONFIG_INFINIBAND_ERDMA",
}

// builtIn reports a driver that the kernel's configuration or modules.builtin lists as
// built in.
func (m *Machine) builtIn(module string) bool {
	if option := builtOptions[module]; option != "" && m.Config[option] == "y" {
		return true
	}
	for _, dir := range []string{"lib/modules", "usr/lib/modules"} {
		for line := range strings.Lines(m.Read(dir, m.Kernel.Release, "modules.builtin").Text) {
			if name, ok := strings.CutSuffix(path.Base(strings.TrimSpace(line)), ".ko"); ok && ModuleOf(name) == module {
				return true
			}
		}
	}
	return false
}

// ModuleOf returns the name of a driver's module in sysfs: "vfio_pci" for vfio-pci.
func ModuleOf(driver string) string { return strings.ReplaceAll(driver, "-", "_") }

// Taint returns the letters in a module's taint file. It returns fs.ErrNotExist if there is
// no such file, and fs.ErrInvalid if its text is no taint.
func (m *Machine) Taint(module string) (string, error) {
	name := path.Join("module", module, "taint")
	data, err := files.ReadFile(m.Sys.Path(name))
	if err != nil {
		return "", err
	}
	text, whole := strings.CutSuffix(string(data), "\n") // the kernel ends the file so
	text = strings.TrimRight(text, " \r")
	if text == "" && !whole {
		return "", fmt.Errorf("the taint of %s is empty: %w", module, fs.ErrInvalid)
	}
	if strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return text, fmt.Errorf("the taint of %s is %q: %w", module, text, fs.ErrInvalid)
	}
	return text, nil
}
