// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/internal/engine"
)

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		list []float64
		want spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{5, 1, 2, 4, 3}, spread{3, 2, 4}},
		{[]float64{1, 2}, spread{1.5, 1.25, 1.75}},
	} {
		if got := spreadOf(tt.list); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.list, got, tt.want)
		}
	}
	if got := ratios([]float64{2, 9, 6}, []float64{1, 0, 2, 5}); got.Median != 2.5 {
		t.Errorf("ratios %v", got)
	}
}

func sampleBench() *Result {
	r := &Result{
		Begun: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), Kernel: "Linux 7.2.12+deb13-amd64 x86_64",
		Server: "10.0.0.1:7471", Rounds: 30, Slice: 10 * time.Millisecond, Depth: 64, Batch: 16,
		Local:    station.Side{Memory: buffer.Description{Spec: "drm:renderD128", Exporter: "drm", Kind: "vram", Size: 8 << 20}, NIC: "mlx5_0", NICReason: "the only one", Path: "direct", Why: "registered by ibv_reg_dmabuf_mr"},
		Remote:   peer.Server{Spec: "udmabuf", NIC: "rxe0", Size: 4 << 20, Path: "direct", Why: "<registered> & well"},
		Over:     link.WayOf(engine.ConnPath{NIC: "mlx5_0", Port: 1, GID: netip.MustParseAddr("10.0.0.2"), Peer: netip.MustParseAddr("10.0.0.1")}),
		NotTried: []buffer.NotTried{},
	}
	for i, op := range []string{"write", "read"} {
		for j, size := range []int64{64, 4 << 10, 1 << 20} {
			for k, kind := range kinds {
				rate := float64(size) * 1e6 / float64(i+k+1) / math.Pow(8, float64(j))
				r.Points = append(r.Points, benchPoint{
					Op: op, Size: size, Kind: kind,
					Latency:   latency{Samples: 1000, P25: time.Duration(1800+int(size)/11) + time.Duration(90*k), P50: time.Duration(2000 + int(size)/10 + 100*k), P75: time.Duration(2500+int(size)/9) + time.Duration(110*k), P90: 4e5, P99: 5e5, P999: 6e5, Max: 7e5},
					Bandwidth: bandwidth{Operations: 5000, Rate: spread{rate, rate * 0.9, rate * 1.1}, Ratio: spread{1 / float64(k+1), 0.4, 1}},
				})
			}
		}
	}
	return r
}

func TestBenchFiles(t *testing.T) {
	r := sampleBench()
	dir := t.TempDir()
	for name, content := range map[string]func(io.Writer) error{"r.csv": r.csv, "r.svg": r.svg} {
		o, err := newOutput("the table", "--csv", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(o.write(content), o.drop()); err != nil {
			t.Fatal(err)
		}
	}
	unwritten, err := newOutput("the table", "--csv", filepath.Join(dir, "not"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unwritten.drop(); err != nil {
		t.Error(err)
	}
	// Nor is anything left of one that cannot be written.
	taken, err := newOutput("the table", "--csv", filepath.Join(dir, "taken"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := newOutput("the table", "--csv", filepath.Join(dir, "taken")); err == nil {
		t.Error("a directory is a place for a file")
	}
	if err := taken.write(r.csv); err == nil {
		t.Error("a file took a directory's place")
	}
	if err := taken.drop(); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
	f, err := os.Open(filepath.Join(dir, "r.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 1+len(r.Points) || rows[1][0] != "write" || rows[2][2] != station.PathStaged {
		t.Errorf("%v, %v", rows, err)
	}
	drawing, err := os.ReadFile(filepath.Join(dir, "r.svg"))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(string(drawing))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := token.(xml.StartElement); ok {
			counts[s.Name.Local]++
		}
	}
	// Two panels of six series, with three points each.
	if counts["polyline"] != 12 || counts["circle"] != 36 || strings.Contains(string(drawing), "NaN") || strings.Contains(string(drawing), "Inf") {
		t.Errorf("%v in:\n%s", counts, drawing)
	}
	if err := (&Result{}).svg(io.Discard); err != nil {
		t.Error(err)
	}
}

// A disk that is full is named once.
func TestOutputIntoAFullDisk(t *testing.T) {
	for name, content := range map[string]func(io.Writer) error{"csv": (&Result{}).csv, "svg": (&Result{}).svg} {
		o, err := newOutput("the table", "--csv", "/dev/full")
		if err != nil {
			t.Fatal(err)
		}
		err = o.write(content)
		if !errors.Is(err, unix.ENOSPC) || strings.Count(err.Error(), "/dev/full") != 1 || !strings.Contains(err.Error(), "write the table") || !strings.Contains(err.Error(), "give --csv a path on another file system") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What people see.
func TestBenchTables(t *testing.T) {
	wide, plain := sampleBench(), sampleBench()
	wide.plot, plain.plot = &canvas{width: 100}, &canvas{width: 60, ascii: true}
	golden.Tables(t, map[string]golden.Result{"bench": sampleBench(), "plot": wide, "plot-ascii": plain})
}
