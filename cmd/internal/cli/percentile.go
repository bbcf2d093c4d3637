// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"time"
)

// Percentile is the smallest of times that at least p percent of them do not
// exceed (nearest rank); 0 if there are none.
func Percentile(times []time.Duration, p int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[max(1, (len(sorted)*p+99)/100)-1]
}
