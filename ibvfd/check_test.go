// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// What sound lets through breaks no rule, and what it does not has one that
// says why: the two are the same rules, written for speed and for people.
func TestSoundIsAllTheRules(t *testing.T) {
	c, err := open(newScript(), "roce0", deviceTree(t), ioctl.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	page := uint64(pageSize)
	edges := []uint64{0, 1, page - 1, page, page + 1, 3 * page, math.MaxUint64 - page, math.MaxUint64 - 1, math.MaxUint64}
	pick := func() uint64 { return edges[rand.IntN(len(edges))] }
	seen := map[bool]int{}
	for range 20000 {
		a := MRAttr{Kind: DMABufFD, Offset: pick(), Length: pick(), IOVA: pick(), Access: Access(rand.IntN(64))}
		if rand.IntN(2) == 0 {
			a.IOVA, a.Access = a.Offset, Access(rand.IntN(4))
		}
		size := pick()
		err := c.faultOf(&a, size)
		if sound := a.sound(size); sound != (err == nil) {
			t.Fatalf("%+v of a buffer of %#x bytes: sound %v, rules %v", a, size, sound, err)
		} else {
			seen[sound]++
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("%d sound and %d unsound attributes are no test", seen[true], seen[false])
	}
}
