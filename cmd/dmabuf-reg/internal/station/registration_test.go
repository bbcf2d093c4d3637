// SPDX-License-Identifier: Apache-2.0

package station

import "testing"

// The text of a path never calls memory direct because it is registered: the bytes may be anywhere.
func TestPathWords(t *testing.T) {
	for _, c := range []struct{ path, why, word, words string }{
		{PathDirect, "registered by REG_DMABUF_MR ioctl; system memory (struct page)", "registered", "registered by REG_DMABUF_MR ioctl; system memory (struct page)"},
		{PathStaged, "asked for by --policy", "staged", "staged: asked for by --policy"},
		{PathMoved, "registered by x, but its bytes: gone", "moved", "moved: registered by x, but its bytes: gone"},
		{"host", "host memory, which every NIC reaches", "host", "host: host memory, which every NIC reaches"},
	} {
		if word, words := PathWord(c.path), PathWords(c.path, c.why); word != c.word || words != c.words {
			t.Errorf("%+v: %q, %q", c, word, words)
		}
	}
}
