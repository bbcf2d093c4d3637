// SPDX-License-Identifier: Apache-2.0

package placement

// ViewOf makes a view of ranges, without Counts, for tests.
func ViewOf(ranges ...Range) View {
	v := View{Ranges: ranges}
	for _, r := range ranges {
		v.Bytes += r.Size
	}
	return v
}
