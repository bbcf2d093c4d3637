// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

type benchDoc struct {
	Batch  int
	Points []struct {
		Op, Kind string
		Size     int64
		Latency  struct {
			Samples int
			P50     int64 `json:"p50_ns"`
			P999    int64 `json:"p999_ns"`
			Max     int64 `json:"max_ns"`
		}
		Bandwidth struct {
			Operations int
			Rate       struct{ Median, Low, High float64 } `json:"bytes_per_s"`
			Ratio      struct{ Median float64 }
		}
		StagedBytes int64 `json:"staged_bytes"`
	}
	NotTried []struct{ Spec, Why string } `json:"not_tried"`
}

// bench measures every operation with every kind of memory. The test does not check how
// fast they are.
//
//testbed:kernel 6.12
func TestVMBench(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	s := serving(t, "--gpu", "drm:vgem")
	dir := t.TempDir()
	measure := func(args ...string) *run {
		return command(t, append([]string{"bench", s.doc.Result.Listen, "--nic", "rxe0", "--size", "256KiB", "--timeout", stepLimit, "--rounds", "2", "--slice", "1ms", "--sizes", "64,32KiB"}, args...)...)
	}
	r := measure("--gpu", "drm:vgem", "--json", "--depth", "300")
	if status := r.do(t); status != cli.ExitUsage {
		t.Errorf("a depth that is too large: exit status %d", status)
	}
	r = measure("--gpu", "drm:vgem", "--json", "--csv", filepath.Join(dir, "r.csv"), "--svg", filepath.Join(dir, "r.svg"), "--html", filepath.Join(dir, "r.html"))
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s\nserve says: %s", status, r.out.String(), r.err.String(), s.says.String())
	}
	d := parse[benchDoc](t, r.out.Bytes())
	if len(d.Result.Points) != 3*2*3 || len(d.Result.NotTried) != 0 {
		t.Fatalf("%d points:\n%s", len(d.Result.Points), r.out.String())
	}
	for _, p := range d.Result.Points {
		l, b := p.Latency, p.Bandwidth
		if l.Samples < 2 || l.P50 <= 0 || l.P999 < l.P50 || l.Max < l.P999 || b.Operations < 2 || b.Rate.Median <= 0 || b.Rate.Low > b.Rate.Median || b.Rate.High < b.Rate.Median || b.Ratio.Median <= 0 {
			t.Errorf("%+v", p)
		}
		// Each staged operation copies every byte. There are fewer fills here than would
		// let a byte have an old value again (refresh).
		want := int64(0)
		if p.Kind == station.PathStaged {
			want = p.Size * int64(l.Samples+b.Operations)
		}
		if p.StagedBytes != want {
			t.Errorf("%s of %d, %s: %d operations staged %d bytes, want %d", p.Op, p.Size, p.Kind, l.Samples+b.Operations, p.StagedBytes, want)
		}
	}
	for _, name := range []string{"r.csv", "r.svg", "r.html"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(data), "staged") {
			t.Errorf("%s: %v\n%s", name, err, data)
		}
	}
	// The page takes the place of the text.
	r = measure("--gpu", "drm:vgem", "--html", "-", "--ops", "write")
	if status := r.do(t); status != cli.ExitOK || !strings.HasPrefix(r.out.String(), "<!doctype html>") || !strings.HasSuffix(r.out.String(), "</html>\n") {
		t.Errorf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	// Host memory has no other kind.
	r = measure("--gpu", "host", "--json", "--ops", "read", "--depth", "1")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	if d := parse[benchDoc](t, r.out.Bytes()); len(d.Result.Points) != 2 || len(d.Result.NotTried) != 2 || d.Result.Batch != 1 {
		t.Errorf("%d points, batch %d, not tried %+v", len(d.Result.Points), d.Result.Batch, d.Result.NotTried)
	}
	s.ends(t)
	nothingMore(t, before)
}
