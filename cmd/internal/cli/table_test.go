// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, [][]string{{"NAME", "VALUE", "LAST"}, {"a", "", "x"}, {"longer\tname", "two\nlines", ""}}); err != nil {
		t.Fatal(err)
	}
	want := "NAME         VALUE      LAST\na            -          x\nlonger name  two lines  -\n"
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b.String(), want)
	}
}

func TestPercentile(t *testing.T) {
	var times []time.Duration
	if got := Percentile(times, 50); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := 100; i > 0; i-- {
		times = append(times, time.Duration(i))
	}
	for p, want := range map[int]time.Duration{0: 1, 1: 1, 50: 50, 99: 99, 100: 100} {
		if got := Percentile(times, p); got != want {
			t.Errorf("p%d = %d, want %d", p, got, want)
		}
	}
	if got := Percentile(times[:1], 50); got != 100 {
		t.Errorf("of one: %d", got)
	}
	if times[0] != 100 {
		t.Error("the caller's slice was sorted")
	}
}

func TestProgressOnlyOnATerminal(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := NewProgress(f)
	p.Draw("work", 1, 2)
	p.Clear()
	if data, _ := os.ReadFile(f.Name()); len(data) != 0 {
		t.Errorf("%q was written to a file", data)
	}
	var b bytes.Buffer
	p.out, p.every = &b, 0
	p.Draw("work", 1, 2)
	p.Draw("work", 1, 0)
	p.Clear()
	p.Clear()
	if want := "\r\x1b[Kwork: 50%\r\x1b[K"; b.String() != want {
		t.Errorf("drew %q, want %q", b.String(), want)
	}
}

func TestRateAndDuration(t *testing.T) {
	for in, want := range map[float64]string{0: "", -1: "", 1.5e6: "1.5 MB/s", 47.25e9: "47.25 GB/s"} {
		if got := Rate(in); got != want {
			t.Errorf("Rate(%v) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[time.Duration]string{
		123456: "123.5µs", 12345678: "12.35ms", 1234567890: "1.23s", 83 * time.Second: "1m23s", 0: "0s",
	} {
		if got := Duration(in); got != want {
			t.Errorf("Duration(%d) = %q, want %q", in, got, want)
		}
	}
}
