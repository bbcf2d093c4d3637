// SPDX-License-Identifier: Apache-2.0

package peer

import "testing"

// The text of a path never calls memory direct because it is registered: the bytes may be anywhere.
func TestPathWords(t *testing.T) {
	for why, want := range map[string][2]string{
		"direct: registered by REG_DMABUF_MR ioctl; system memory (struct page)": {"registered", "registered by REG_DMABUF_MR ioctl; system memory (struct page)"},
		"staged: asked for by --policy":                                          {"staged", "staged: asked for by --policy"},
		"moved: registered by x, but its bytes: gone":                            {"moved", "moved: registered by x, but its bytes: gone"},
		"host: host memory, which every NIC reaches":                             {"host", "host: host memory, which every NIC reaches"},
		"": {"registered", ""},
	} {
		s := &Server{Why: why}
		if s.PathWord() != want[0] || s.PathWords() != want[1] {
			t.Errorf("%q: %q, %q", why, s.PathWord(), s.PathWords())
		}
	}
}
