// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
		a := MRAttr{Kind: DMABufFD, Offset: pick(), Length: pick(), IOVA: pick(), Access: Access(rand.IntN(1 << 10))}
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

// FLUSH is spoken of where it is all that is refused.
func TestFlushRemedy(t *testing.T) {
	for access, want := range map[Access]bool{
		AccessFlushGlobal: true, AccessLocalWrite | accessFlush: true,
		AccessFlushGlobal | AccessMWBind: false, 0x7fffffff: false, AccessOnDemand: false,
	} {
		f := badDMABufAccess(access)
		if f == nil || strings.Contains(f.remedy, "FLUSH") != want || !strings.HasPrefix(f.remedy, "leave ") {
			t.Errorf("%v: %+v, FLUSH %v", access, f, want)
		}
	}
}

// The right to flush is for host memory, where kernel, device and memory have
// it: each refusal says what to do.
func TestFlushAccess(t *testing.T) {
	if s := (AccessFlushGlobal | AccessFlushPersistent).String(); s != "flush-global|flush-persistent" {
		t.Error(s)
	}
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	mem, err := AllocHost(100)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	host := MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 100, Access: AccessFlushGlobal | AccessFlushPersistent, Owner: mem}
	mr, err := pd.RegMR(host) // no other flag is needed
	if err != nil {
		t.Fatal(err)
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	global := host
	global.Access = AccessLocalWrite | AccessFlushGlobal
	dma := MRAttr{Kind: DMABufFD, Length: 100, Access: global.Access}
	for name, c := range map[string]struct {
		attr  MRAttr
		errno unix.Errno // the kernel's
		cause Cause
		words []string
		never string
	}{
		"dma-buf":    {dma, 0, CauseAccess, []string{"a dma-buf MR cannot have flush-global", "leave flush-global out", "only host memory"}, "local-write out"},
		"not there":  {global, unix.EINVAL, CauseAccess, []string{"flush-global takes Linux 6.2", "leave flush-global out"}, "persistent"},
		"not pmem":   {host, unix.EINVAL, CauseAccess, []string{"Linux 6.2 and memory that is persistent", "DAX"}, ""},
		"not by NIC": {global, unix.EOPNOTSUPP, CauseNotSupported, []string{"the device has no flush-global", "leave flush-global out"}, "persistent"},
	} {
		s.failWith("regHost", c.errno)
		err := pd.ctx.faultOf(&c.attr, 100) // no registration of a dma-buf gets further
		if c.attr.Kind == HostMemory {
			_, err = pd.RegMR(c.attr)
		}
		var e *RegError
		if !errors.As(err, &e) || e.Cause != c.cause {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", name, err, w)
			}
		}
		if c.never != "" && strings.Contains(err.Error(), c.never) {
			t.Errorf("%s: %v has %q", name, err, c.never)
		}
	}
}
