// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// An operation's bytes are taken from its parts in order.
func TestStretch(t *testing.T) {
	s := stretch{5, 10}
	for _, x := range []struct{ size, at, some int64 }{{3, 3, 0}, {4, 2, 2}, {0, 0, 0}, {6, 0, 6}, {9, 0, 2}, {7, 0, 0}} {
		if at, some := s.take(x.size); at != x.at || some != x.some {
			t.Errorf("of %d: %d bytes at %d, want %d at %d", x.size, some, at, x.some, x.at)
		}
	}
}

// Bytes go to the rail that carries them first; one that was not measured counts as the fastest.
func TestBest(t *testing.T) {
	fast, slow, idle := &Rail{Number: 0}, &Rail{Number: 1}, &Rail{Number: 2}
	fast.load = load{rate: 4e6, bytes: 3 << 20}
	slow.load = load{rate: 1e6}
	list := []*Rail{fast, slow}
	for _, x := range []struct {
		n    int64
		want *Rail
	}{{512 << 10, slow}, {2 << 20, fast}} {
		if r := best(list, x.n); r != x.want {
			t.Errorf("%d bytes go over rail %d", x.n, r.Number)
		}
	}
	if r := best(append(list, idle), 2<<20); r != idle {
		t.Errorf("rail %d", r.Number)
	}
}

// Rails of different rates carry an operation in little more time than their sum needs, whether the
// rates are known or not.
func TestNext(t *testing.T) {
	for _, x := range []struct {
		rates []float64 // bytes a second
		size  int64
	}{
		{[]float64{4e6, 4e6, 2e6, 1e6}, 32 << 20},
		{[]float64{4e6, 4e6, 2e6, 1e6}, 4 << 20},
		{[]float64{1e10, 1e10}, 1 << 30},
		{[]float64{1e10, 1e9, 1e8}, 1 << 30},
		{[]float64{5e10}, 1 << 28},
	} {
		for _, known := range []bool{true, false} {
			var took, sum float64
			synctest.Test(t, func(*testing.T) { took = carried(x.rates, x.size, known) })
			for _, rate := range x.rates {
				sum += rate
			}
			ideal := float64(x.size) / sum
			t.Logf("%v, %d bytes, known %v: %.3f of the sum of the rates", x.rates, x.size, known, ideal/took)
			if ideal/took < 0.95 {
				t.Error("it takes too long")
			}
		}
	}
}

// Whatever the rate of a rail is, its slices have sizes that keep an aligned operation aligned.
func TestSliceSizes(t *testing.T) {
	for rate := 1.0; rate < 1e12; rate *= 1.37 {
		l := load{rate: rate}
		for parts := 1; parts <= 8; parts++ {
			for _, size := range []int64{cutFrom, cutFrom + 4096, 1<<20 - 4096, 1 << 30} {
				if n := l.slice(size, parts); n < leastSlice || n > mostSlice || n%4096 != 0 {
					t.Errorf("%.0f bytes a second: slices of %d bytes of %d", rate, n, size)
				}
			}
		}
	}
}

// carried returns how many seconds rails of these rates take for an operation.
func carried(rates []float64, size int64, known bool) float64 {
	var rails []*Rail
	for i, rate := range rates {
		r := &Rail{Number: i}
		if known {
			r.load.rate = rate
		}
		rails = append(rails, r)
	}
	took, _ := carry(rails, rates, size)
	return took
}

// carry returns how many seconds rails take for an operation, and how many bytes each carries, by the clock
// of a synctest bubble.
func carry(rails []*Rail, rates []float64, size int64) (took float64, each map[*Rail]int64) {
	queues := map[*Rail][]int64{} // sizes of slices
	ends := map[*Rail]time.Time{} // when the first of them ends
	begin := time.Now()
	start := func(r *Rail) {
		ends[r] = time.Now().Add(time.Duration(math.Ceil(float64(queues[r][0]) / rates[r.Number] * 1e9)))
	}
	each = map[*Rail]int64{}
	for left := size; ; {
		for left > 0 {
			r, n := next(rails, size, left)
			if r == nil {
				break
			}
			left -= n
			r.load.begin(n)
			pass(rails, r, n)
			queues[r], each[r] = append(queues[r], n), each[r]+n
			if len(queues[r]) == 1 {
				start(r)
			}
		}
		var first *Rail
		for _, r := range rails {
			if len(queues[r]) > 0 && (first == nil || ends[r].Before(ends[first])) {
				first = r
			}
		}
		if first == nil {
			return time.Since(begin).Seconds(), each
		}
		time.Sleep(time.Until(ends[first]))
		first.load.end(queues[first][0], true)
		if queues[first] = queues[first][1:]; len(queues[first]) > 0 {
			start(first)
		}
	}
}

// A rail that was slow when it was measured is measured again, and gets its part.
func TestMeasureAgain(t *testing.T) {
	const fast = 1e9
	for slow, size := range map[float64]int64{1e8: 256 << 10, 1e7: 1 << 20, 1e6: 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			rails, rates := []*Rail{{Number: 0}, {Number: 1}}, []float64{fast, fast}
			rails[0].load.rate, rails[1].load.rate = fast, slow
			// The slow time has left a sample that is not complete. The new rate must not contain it.
			rails[1].load.moved, rails[1].load.busy = int64(slow*0.004), 4*time.Millisecond
			begin := time.Now()
			for rails[1].load.rate == slow {
				if carry(rails, rates, size); time.Since(begin) > time.Minute {
					t.Fatalf("%.0f: it was not measured again", slow)
				}
			}
			pause := firstTry * max(leastSlice/slow, sample.Seconds())
			took := time.Since(begin).Seconds()
			t.Logf("%.0f: measured again after %.4f s", slow, took)
			ops := math.Ceil(sample.Seconds() * fast / leastSlice) // each has a slice of the sample
			if took < pause || took > pause+(ops+2)*float64(size)/fast {
				t.Errorf("%.0f: it was measured again after %.3f s, want %.3f", slow, took, pause)
			}
			if rate := rails[1].load.rate; rate < 0.99*fast || rate > 1.01*fast || rails[1].load.again {
				t.Errorf("%.0f: now its rate is %.0f", slow, rate)
			}
			if _, each := carry(rails, rates, size); each[rails[1]] < size/3 {
				t.Errorf("%.0f: it is as fast as the other one, and carried %d bytes", slow, each[rails[1]])
			}
			if rails[1].load.tries != 0 {
				t.Errorf("%.0f: the next pause would be longer", slow)
			}
		})
	}
}

// A rail is not measured again while it has a slice that is measured.
func TestMeasuredMeanwhile(t *testing.T) {
	fast, slow := &Rail{Number: 0, load: load{rate: 1e9}}, &Rail{Number: 1, load: load{rate: 1e6}}
	slow.load.begin(leastSlice)
	for range 10_000 {
		pass([]*Rail{fast, slow}, fast, mostSlice)
	}
	if slow.load.again {
		t.Error("it is measured again")
	}
}

// A rail that is slow for good costs a small part of the time, and its pauses become longer.
func TestSlowForGood(t *testing.T) {
	for _, x := range []struct {
		fast  int // rails
		rates [2]float64
		size  int64
	}{
		{1, [2]float64{1e9, 1e8}, 256 << 10}, {1, [2]float64{1e9, 1e7}, 1 << 20}, {1, [2]float64{1e9, 1e6}, 1 << 20},
		{7, [2]float64{1e9, 1e7}, 1 << 20}, {1, [2]float64{12.5e9, 1.25e9}, 256 << 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			var rails []*Rail
			var rates []float64
			for i := range x.fast + 1 {
				rates = append(rates, x.rates[i/x.fast])
				rails = append(rails, &Rail{Number: i, load: load{rate: rates[i]}})
			}
			slow := rails[x.fast]
			once, each := carry(rails, rates, x.size)
			if each[slow] > 0 {
				t.Fatalf("it got %d bytes", each[slow])
			}
			cost := max(leastSlice/x.rates[1], sample.Seconds())
			took, n := 0.0, 0
			for ; took < 150*cost; n++ {
				now, _ := carry(rails, rates, x.size)
				took += now
			}
			t.Logf("%d of %.0f bytes a second beside %.0f, %d bytes each time: %.2f %% more time, %d tries", x.fast, x.rates[0], x.rates[1], x.size, 100*(took/(once*float64(n))-1), slow.load.tries)
			if took > 1.05*once*float64(n) {
				t.Errorf("%.4f s, without that %.4f s", took, once*float64(n))
			}
			if slow.load.tries < 3 || slow.load.tries > 5 { // after 8, 24, 56 and 120 times the cost
				t.Errorf("%d tries", slow.load.tries)
			}
		})
	}
}

// Operations that are not cut go over a rail that is measured again one at a time, whether they come one after
// the other or at once.
func TestMeasureAgainWhole(t *testing.T) {
	for _, window := range []int{1, 64} {
		fast, slow := &Rail{Number: 0, load: load{rate: 1e9}}, &Rail{Number: 1, load: load{rate: 1e7}}
		list := []*Rail{fast, slow}
		got := 0
		for i := 0; i < 100_000 && got == 0; i++ {
			var under []*Rail
			for range window {
				r := best(list, 128<<10)
				r.load.begin(128 << 10)
				pass(list, r, 128<<10)
				under = append(under, r)
				if r == slow {
					got++
				}
			}
			for _, r := range under {
				r.load.end(128<<10, false)
			}
		}
		if got != 1 {
			t.Errorf("%d at once: it got %d of the first ones", window, got)
		}
	}
}

// While a rail is measured, the others carry the rest, though it may never end.
func TestMeasuredRailIsStuck(t *testing.T) {
	const size = 16 << 20
	for what, l := range map[string]load{
		"a slice that is measured": {rate: 1e8, again: true, slices: 1, large: 1, bytes: leastSlice},
		"messages":                 {rate: 1e8, again: true, slices: 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			fast, slow := &Rail{Number: 0, load: load{rate: 1e9}}, &Rail{Number: 1, load: l}
			left, onSlow := int64(size), int64(0)
			for left > 0 {
				r, n := next([]*Rail{fast, slow}, size, left)
				if r == nil {
					break
				}
				left -= n
				if r == slow {
					slow.load.begin(n)
					onSlow += n
					continue
				}
				fast.load.begin(n)
				time.Sleep(time.Duration(n)) // at the rate of 1e9 bytes a second
				fast.load.end(n, true)
			}
			if left > 0 || onSlow > leastSlice {
				t.Errorf("%s: %d bytes wait, %d are on the rail", what, left, onSlow)
			}
		})
	}
}

// A rail is slow when it stays below half of its best, and not any more when it is above.
func TestSlow(t *testing.T) {
	l := load{rate: 1e12, best: 1e12}
	step := func(rate float64) (changed bool) {
		l.begin(leastSlice)
		l.since, l.rate = time.Now().Add(-time.Second), rate
		return l.end(leastSlice, true)
	}
	for i := range slowSamples {
		if changed := step(1e9); changed != (i == slowSamples-1) || l.slow != changed {
			t.Fatalf("sample %d: slow %v, changed %v", i, l.slow, changed)
		}
	}
	if step(1e9) || !l.slow {
		t.Error("it is not slow any more")
	}
	if !step(1e12) || l.slow {
		t.Error("it is still slow")
	}
}

// remote returns a descriptor of some bytes.
func remote(t *testing.T, size int64) *memory.RemoteBuffer {
	t.Helper()
	n := memory.NewNIC(memnic.New(memnic.Manual()).Device("fake0", memnic.Limits{}), memory.NICOptions{})
	b, err := n.AllocHost(size)
	if err != nil {
		t.Fatal(err)
	}
	rb, err := n.Grant(b.All(), ibvfd.AccessRemoteRead, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(rb.Grant().Withdraw(), b.Release(), n.Close()); err != nil {
			t.Error(err)
		}
	})
	return rb
}

// A descriptor of several rails comes back, and a part of one, or one whose rails have different
// sizes, does not.
func TestDescriptor(t *testing.T) {
	first, third := remote(t, 64), remote(t, 64)
	of := func(last *memory.RemoteBuffer) *Others {
		return &Others{given: []*memory.RemoteBuffer{nil, nil, last}, by: make([]atomic.Pointer[memory.RemoteBuffer], 3)}
	}
	data, err := Encode(first, of(third))
	if err != nil {
		t.Fatal(err)
	}
	rb, o, err := Decode(data)
	if err != nil || rb.ID() != first.ID() || o.On(1) != nil || o.On(2).ID() != third.ID() || o.On(3) != nil {
		t.Errorf("%v, %v, %v", rb, o, err)
	}
	for n := range data {
		if _, _, err := Decode(data[:n]); err == nil {
			t.Errorf("the first %d of %d bytes pass", n, len(data))
		}
	}
	if one, err := Encode(first, nil); err != nil {
		t.Error(err)
	} else if rb, o, err := Decode(one); err != nil || o != nil || rb.ID() != first.ID() {
		t.Errorf("%v, %v, %v", rb, o, err)
	}
	if data, err = Encode(first, of(remote(t, 65))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Decode(data); err == nil {
		t.Error("rails with different sizes pass")
	}
	for _, bad := range [][]byte{nil, {several}, {several, 0}, {several, 255, 255, 255}} {
		if _, _, err := Decode(bad); err == nil {
			t.Errorf("%x passes", bad)
		}
	}
}

// Writes to one memory are one entry, and a flush of one memory leaves the others.
func TestPushed(t *testing.T) {
	a, b := &Rail{}, &Rail{Number: 1}
	s := &scheduler{}
	add := func(r *Rail, mem, lo, mark uint64) {
		s.push(&job{only: r, bytes: []memory.Bytes{{Memory: mem, Lo: lo, Hi: lo + 8}}, mark: mark})
	}
	add(a, 1, 0, 1)
	add(a, 2, 0, 2)
	add(a, 1, 100, 3)
	add(b, 1, 0, 4)
	if len(s.pushed) != 3 || s.pushed[0].at != (memory.Bytes{Memory: 1, Lo: 0, Hi: 108}) {
		t.Fatalf("%+v", s.pushed)
	}
	s.flushed(a, 1, 2) // the write of 3 came after it
	s.flushed(a, 2, 4)
	if len(s.pushed) != 2 {
		t.Fatalf("%+v", s.pushed)
	}
	s.lost(a, 0)
	add(a, 3, 0, 5) // over the next link
	add(a, 4, 0, 6)
	s.lost(a, 1)
	s.relinked(a, 1) // the peer may not have destroyed its queue pairs of link 1
	s.flushed(a, 4, 6)
	if len(s.pushed) != 2 || s.pushed[0].r != b || s.pushed[1].at.Memory != 3 {
		t.Errorf("%+v", s.pushed)
	}
}
