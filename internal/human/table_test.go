// SPDX-License-Identifier: Apache-2.0

package human

import (
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
