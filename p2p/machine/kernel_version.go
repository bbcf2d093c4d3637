// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/gpurdma/gpurdma/placement"
)

// V5_12 has the method that registers a dma-buf.
var V5_12 = Version{5, 12}

// OnDemandPaging is whether the kernel is built with it, which mlx5 asks for. Where no
// configuration was found, a symbol says so: mlx5_ib has it with that option only, and the other
// always.
func (m *Machine) OnDemandPaging() placement.Answer {
	if m.Config != nil {
		return m.Config.Answer(ConfigODP)
	}
	if m.Kernel.other != "" { // the symbols are those of the kernel that runs
		return placement.AnswerUnknown
	}
	return Once(m, "on-demand paging", func() placement.Answer {
		answer, _ := moduleHasSymbol(m.Proc, "mlx5_ib", "mlx5_ib_odp_init_one", "mlx5_ib_reg_user_mr")
		return answer
	})
}

const osrelease = "/proc/sys/kernel/osrelease"

// Unversioned says why the kernel has no known version.
func (k Kernel) Unversioned() string {
	if k.Release == "" && k.releasedAt != "" {
		return "/proc/sys/kernel/osrelease and /proc/version name two different kernels"
	}
	if k.Release == "" {
		return "the kernel's release was not read, or not whole"
	}
	return fmt.Sprintf("the kernel's release %q has no version", k.Release)
}

// ReleasedAt is the file that the release was read from. It is nil if another release was given.
func (k Kernel) ReleasedAt() []string {
	if k.other != "" {
		return nil
	}
	if k.releasedAt != "" {
		return []string{k.releasedAt}
	}
	return []string{osrelease}
}
