// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Whatever was measured, a plot is as wide as it may be, has only characters of the locale, and shows each curve.
func TestPlots(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		r := &Result{plot: &canvas{width: leastWidth + random.IntN(mostWidth-leastWidth+1), ascii: random.IntN(2) == 0}}
		shown := false
		sizes := 1 + random.IntN(12)
		for range sizes {
			size := int64(1) << random.IntN(40)
			for _, kind := range kinds {
				v := random.Float64() * float64(int64(1)<<random.IntN(50))
				if random.IntN(8) == 0 {
					v = 0
				}
				shown = shown || v > 0
				r.Points = append(r.Points, benchPoint{Op: "write", Size: size, Kind: kind, Bandwidth: bandwidth{Rate: spread{v, v / 2, v * 3}}, Latency: latency{P25: time.Duration(v / 2), P50: time.Duration(v), P75: time.Duration(2 * v)}})
			}
		}
		var b strings.Builder
		r.plots(&b)
		heads := 0
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "write, ") {
				heads++
				continue // the key may be longer
			}
			if n := utf8.RuneCountInString(line); n > r.plot.width {
				t.Fatalf("%d characters, at most %d: %q", n, r.plot.width, line)
			}
			if i := strings.IndexFunc(line, func(c rune) bool { return c >= utf8.RuneSelf }); r.plot.ascii && i >= 0 {
				t.Fatalf("%q", line)
			}
		}
		// At least one letter, or that of several, is on the first plot.
		drawn := strings.Join(strings.Split(b.String(), "\n")[2:2+plotHeight], "\n")
		if heads != 2 || shown && !strings.ContainsAny(drawn, "dsh*◆") {
			t.Fatalf("%d plots:\n%s", heads, &b)
		}
	}
}

// The locale is that of the first variable that is set.
func TestLocale(t *testing.T) {
	for set, want := range map[string]bool{
		"": false, "LANG=C": false, "LANG=C.UTF-8": true, "LANG=de_DE.utf8": true, "LC_ALL=C LANG=C.UTF-8": false, "LC_CTYPE=C.UTF-8 LANG=C": true, "LC_ALL= LANG=en_US.UTF-8": true,
	} {
		env := map[string]string{}
		for _, x := range strings.Fields(set) {
			name, value, _ := strings.Cut(x, "=")
			env[name] = value
		}
		if got := utf8Locale(func(name string) string { return env[name] }); got != want {
			t.Errorf("%q: %t", set, got)
		}
	}
}

// A plot is as wide as COLUMNS where there is no terminal, within bounds.
func TestWidth(t *testing.T) {
	for set, want := range map[string]int{"": plainWidth, "100": 100, "3": leastWidth, "100000": mostWidth, "-5": plainWidth, "wide": plainWidth} {
		t.Setenv("COLUMNS", set)
		if got := newCanvas(&strings.Builder{}).width; got != want {
			t.Errorf("COLUMNS=%s: %d, want %d", set, got, want)
		}
	}
}
