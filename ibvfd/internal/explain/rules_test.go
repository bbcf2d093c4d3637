// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// What Sound lets through breaks no rule, and what it does not has one that
// says why: the two are the same rules, written for speed and for people.
func TestSoundIsAllTheRules(t *testing.T) {
	page := uint64(pageSize)
	edges := []uint64{0, 1, page - 1, page, page + 1, 3 * page, math.MaxUint64 - page, math.MaxUint64 - 1, math.MaxUint64}
	pick := func() uint64 { return edges[rand.IntN(len(edges))] }
	seen := map[bool]int{}
	for range 20000 {
		a := Request{Offset: pick(), Length: pick(), IOVA: pick(), Access: uint32(rand.IntN(1 << 10))}
		if rand.IntN(2) == 0 {
			a.IOVA, a.Access = a.Offset, uint32(rand.IntN(4))
		}
		size := pick()
		broken := OfDMABuf(&a, size)
		if sound := a.Sound(size); sound != (broken == nil) {
			t.Fatalf("%+v of a buffer of %#x bytes: sound %v, rules %v", a, size, sound, broken)
		} else {
			seen[sound]++
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("%d sound and %d unsound attributes are no test", seen[true], seen[false])
	}
}

// FLUSH is spoken of where it is all that is refused.
func TestFlushRemedy(t *testing.T) {
	for access, want := range map[uint32]bool{
		uverbs.AccessFlushGlobal: true, uverbs.AccessLocalWrite | accessFlush: true,
		uverbs.AccessFlushGlobal | uverbs.AccessMWBind: false, 0x7fffffff: false, uverbs.AccessOnDemand: false,
	} {
		f := BadDMABufAccess(access)
		if f == nil || strings.Contains(f.Remedy, "FLUSH") != want || !strings.HasPrefix(f.Remedy, "leave ") {
			t.Errorf("%v: %+v, FLUSH %v", access, f, want)
		}
	}
}
