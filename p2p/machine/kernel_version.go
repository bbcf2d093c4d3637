// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/gpurdma/gpurdma/placement"
)

// V5_12 is the first series with the method that registers a dma-buf.
var V5_12 = Version{5, 12}

// OnDemandPaging says whether the kernel is built with on-demand paging, which mlx5 needs
// for dma-bufs. Without the kernel's configuration it looks for a symbol that mlx5_ib has
// only with that option.
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

// Unversioned returns the reason why the kernel's version is not known.
func (k Kernel) Unversioned() string {
	if k.Release == "" && k.releasedAt != "" {
		return "/proc/sys/kernel/osrelease and /proc/version name two different kernels"
	}
	if k.Release == "" {
		return "the kernel's release was not read, or not whole"
	}
	return fmt.Sprintf("the kernel's release %q has no version", k.Release)
}

// ReleasedAt returns the file from which the release was read; nil if the caller has given
// another release.
func (k Kernel) ReleasedAt() []string {
	if k.other != "" {
		return nil
	}
	if k.releasedAt != "" {
		return []string{k.releasedAt}
	}
	return []string{osrelease}
}
