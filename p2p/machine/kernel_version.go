// SPDX-License-Identifier: Apache-2.0

package machine

// V5_12 has the method that registers a dma-buf.
var V5_12 = Version{5, 12}

const osrelease = "/proc/sys/kernel/osrelease"

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
