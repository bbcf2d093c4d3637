// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/bench"
	"github.com/gpurdma/gpurdma/p2p/page/browser/tab"
)

// object is JSON.
type object = map[string]any

var sizes = []int{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// result is a run as --json has it, with a text in the place of each text that is foreign.
func result(foreign string, sizes ...int) object {
	text := func(own string) string {
		if foreign != "" {
			return foreign
		}
		return own
	}
	var points []object
	for i, op := range []string{"write", "read", "send"} {
		for _, size := range sizes {
			for k, kind := range []string{"direct", "staged", "host"} {
				slow := 1 + 0.35*float64(k) + 0.2*float64(i)
				p50 := (1800 + float64(size)/22) * slow
				rate := float64(size) / (p50/12 + float64(size)/24) * 1e9 / slow
				points = append(points, object{
					"op": op, "size": size, "kind": kind,
					"latency":      object{"samples": 3000, "p25_ns": int(p50 * 0.93), "p50_ns": int(p50), "p75_ns": int(p50 * 1.15), "p90_ns": int(p50 * 1.4), "p99_ns": int(p50 * 2.2), "p999_ns": int(p50 * 4), "max_ns": int(p50 * 9)},
					"bandwidth":    object{"operations": 90000, "bytes_per_s": object{"median": rate, "low": rate * 0.9, "high": rate * 1.06}, "ratio": object{"median": 1 / slow}},
					"staged_bytes": k % 2 * size * 1000,
				})
			}
		}
	}
	return object{
		"begun": "2026-11-29T12:00:00Z", "kernel": text("Linux 7.2.12+deb13-amd64 x86_64"), "server": text("10.0.0.1:7471"),
		"local": object{
			"memory": object{"spec": text("drm:renderD128"), "exporter": text("drm"), "kind": "vram", "size": 8 << 20}, "nic": text("mlx5_0"), "nic_reason": text("the nearest that registers dma-bufs"),
			"path": text("direct"), "why": text("registered by ibv_reg_dmabuf_mr"),
		},
		"remote": object{"spec": text("udmabuf"), "nic": text("mlx5_1"), "size": 16 << 20, "path": text("direct"), "why": text("registered by ibv_reg_dmabuf_mr")},
		"over":   object{"port": 1, "gid": text("10.0.0.2"), "peer_gid": text("10.0.0.1"), "why": text("TCP goes over it")},
		"rounds": 30, "slice_ns": 10000000, "depth": 64, "batch": 16, "points": points,
		"not_tried": []object{{"spec": text("rocm:0"), "why": text("the library is not installed")}},
	}
}

// drawn shows a page, and waits until its curves are drawn.
func drawn(t *testing.T, text string, before ...chromedp.Action[chromedp.Void]) *tab.Tab {
	t.Helper()
	b := tab.Open(t, text, before...)
	b.Settle()
	return b
}

// page is the page of a run.
func page(t *testing.T, run object) string {
	t.Helper()
	text, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	var r bench.Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.WritePage(&b, "v1.2-test"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// ink is how many pixels of a canvas have the colour of a kind of memory, more or less.
const ink = `(() => {
	const rgb = (name) => { const n = parseInt(getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim().slice(1), 16); return [n >> 16, n >> 8 & 255, n & 255]; };
	const out = {};
	document.querySelectorAll("figure[data-op]").forEach((f) => {
		const canvas = f.querySelector("canvas"), copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
		copy.drawImage(canvas, 0, 0);
		const d = copy.getImageData(0, 0, canvas.width, canvas.height).data;
		const counts = {};
		for (const name of ["direct", "staged", "host"]) {
			const c = rgb(name);
			let n = 0;
			for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200 && Math.abs(d[i] - c[0]) < 12 && Math.abs(d[i + 1] - c[1]) < 12 && Math.abs(d[i + 2] - c[2]) < 12) n++;
			counts[name] = n;
		}
		out[f.dataset.op + " " + f.dataset.of] = counts;
	});
	return JSON.stringify(out);
})()`

func inked(t *testing.T, b *tab.Tab) (out map[string]map[string]int) {
	t.Helper()
	if err := json.Unmarshal([]byte(tab.Eval[string](b, ink)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Each plot has each curve, in light and in dark; a curve that is switched off is gone, and comes again.
func TestCurves(t *testing.T) {
	for how, action := range tab.Media {
		t.Run(how, func(t *testing.T) {
			b := drawn(t, page(t, result("", sizes...)), action)
			drawn := inked(t, b)
			if len(drawn) != 6 {
				t.Fatalf("%d plots", len(drawn))
			}
			for plot, kinds := range drawn {
				for kind, n := range kinds {
					if n < 100 {
						t.Errorf("%s: %d pixels of %s", plot, n, kind)
					}
				}
			}
			toggle := "(() => { document.querySelector('input[name=staged]').click(); return true; })()"
			tab.Eval[bool](b, toggle)
			b.Settle()
			for plot, kinds := range inked(t, b) {
				if kinds["staged"] > 20 || kinds["direct"] < 100 {
					t.Errorf("without staged, %s: %v", plot, kinds)
				}
			}
			tab.Eval[bool](b, toggle)
			b.Settle()
			for plot, kinds := range inked(t, b) {
				if kinds["staged"] < 100 {
					t.Errorf("with staged again, %s: %v", plot, kinds)
				}
			}
			before := drawn["write latency"]["host"]
			tab.Eval[bool](b, "(() => { document.querySelector('input[name=tail]').click(); return true; })()")
			b.Settle()
			if after := inked(t, b)["write latency"]["host"]; after == before {
				t.Error("the 99th percentile is not drawn")
			}
		})
	}
}

// The axes have round numbers, and the sizes that were measured.
func TestAxes(t *testing.T) {
	b := drawn(t, page(t, result("", sizes...)), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		// The list has each text that the page writes on a canvas.
		_, err := cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `window.written = []; const fill = CanvasRenderingContext2D.prototype.fillText; CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { window.written.push(text); return fill.call(this, text, ...at); };`})
		return err
	}))
	written := tab.Eval[[]string](b, "window.written")
	seen := map[string]bool{}
	for _, text := range written {
		seen[text] = true
	}
	for _, want := range []string{"64 B", "4 KiB", "4 MiB", "1 GB/s", "10 GB/s", "10 µs", "100 µs"} {
		if !seen[want] {
			t.Errorf("no axis has %s: %q", want, written)
		}
	}
	for text := range seen {
		if !regexp.MustCompile(`^(1|2|5|10|20|50|100|200|500) (ns|µs|ms|[kMGT]B/s)$|^[0-9]+ ([KM]iB|B)$`).MatchString(text) || text == "0 B" {
			t.Errorf("an axis has %q", text)
		}
	}
}

// The cursor's values are in words below the plot, and are those of the table.
func TestReadout(t *testing.T) {
	b := drawn(t, page(t, result("", sizes...)))
	// In the middle of the plot is the fifth of nine sizes.
	tab.Eval[bool](b, `(() => {
		const over = document.querySelector("figure[data-op=write][data-of=bandwidth] .u-over"), r = over.getBoundingClientRect();
		for (const type of ["mouseenter", "mousemove"]) over.dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: r.left + r.width / 2, clientY: r.top + r.height / 2}));
		return true;
	})()`)
	b.Settle()
	said := b.Text("figure[data-op=write][data-of=bandwidth] .readout")
	if !strings.HasPrefix(said, "16 KiB: direct ") || !strings.Contains(said, "; staged ") || !strings.Contains(said, " to ") {
		t.Errorf("%q", said)
	}
	if other := b.Text("figure[data-op=read][data-of=latency] .readout"); !strings.HasPrefix(other, "16 KiB: direct ") {
		t.Errorf("the other plots do not follow: %q", other)
	}
}

// A narrow window has the plots one below the other, and nothing wider than it but the table in its own frame.
func TestNarrow(t *testing.T) {
	b := drawn(t, page(t, result("", sizes...)), chromedp.EmulateViewport(360, 800))
	if wide := tab.Eval[float64](b, "document.documentElement.scrollWidth"); wide > 360 {
		t.Errorf("%v pixels wide", wide)
	}
	if n := tab.Eval[float64](b, "document.querySelector('.u-wrap').clientWidth"); n > 360 || n < 200 {
		t.Errorf("a plot is %v pixels wide", n)
	}
}

// One size, and numbers that no logarithm has, are drawn as far as they can be.
func TestFewPoints(t *testing.T) {
	b := drawn(t, page(t, result("", 4096)))
	if n := tab.Eval[string](b, "document.documentElement.dataset.drawn"); n != "6" {
		t.Errorf("%s plots", n)
	}
	run := result("", sizes...)
	for _, p := range run["points"].([]object) {
		p["bandwidth"].(object)["bytes_per_s"] = object{"median": 0, "low": 0, "high": 0}
	}
	b = drawn(t, page(t, run))
	if n := tab.Eval[string](b, "document.documentElement.dataset.drawn"); n != "3" || b.Text("figure[data-of=bandwidth] .readout") != "Nothing was measured." {
		t.Errorf("%s plots, %q", n, b.Text("figure[data-of=bandwidth] .readout"))
	}
	run = result("", sizes...)
	first := run["points"].([]object)[0] // of one curve one point is missing
	first["bandwidth"].(object)["bytes_per_s"] = object{"median": 0, "low": 0, "high": 0}
	first["latency"].(object)["p25_ns"] = 0
	b = drawn(t, page(t, run))
	if n := tab.Eval[string](b, "document.documentElement.dataset.drawn"); n != "6" {
		t.Errorf("%s plots", n)
	}
	for plot, kinds := range inked(t, b) {
		if kinds["direct"] < 100 || kinds["host"] < 100 {
			t.Errorf("%s with a missing point: %v", plot, kinds)
		}
	}
	delete(run, "points")
	b = drawn(t, page(t, run))
	if n := tab.Eval[string](b, "document.documentElement.dataset.drawn"); n != "0" || !strings.Contains(b.Text("main"), "Nothing was measured.") {
		t.Errorf("%s plots, %q", n, b.Text("main"))
	}
	most := result("", 1, math.MaxInt32)
	if n := tab.Eval[string](drawn(t, page(t, most)), "document.documentElement.dataset.drawn"); n != "6" {
		t.Errorf("%s plots", n)
	}
}

// Texts of machines and of the server are text, whatever they are: nothing runs, and nothing is asked for.
func TestHostile(t *testing.T) {
	for _, text := range []string{
		"</script><script>document.title='owned'</script>", "<!--<script>", "]]><svg onload=\"document.title='owned'\">", `"><img src=x onerror="document.title='owned'">`,
		"</style><style>*{display:none}", "</title><script>document.title='owned'</script>", "{{.Data}}", "\u2028document.title='owned'", "<iframe src='http://127.0.0.1:1/'>", "<base href='http://127.0.0.1:1/'>",
		strings.Repeat("M", 5000),
	} {
		b := drawn(t, page(t, result(text, sizes...)))
		if title := tab.Eval[string](b, "document.title"); title == "owned" {
			t.Errorf("%.40q ran", text)
		}
		if n := tab.Eval[string](b, "document.documentElement.dataset.drawn"); n != "6" {
			t.Errorf("%.40q: %s plots", text, n)
		}
		if wide := tab.Eval[float64](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%.40q makes the page %v pixels too wide", text, wide)
		}
		if shown := b.Text("dl"); len(text) < 1000 && !strings.Contains(shown, strings.Join(strings.Fields(text), " ")) {
			t.Errorf("%.40q is not shown: %s", text, shown)
		}
	}
}

// The policy of the page keeps a script that does not belong to it from running.
func TestPolicy(t *testing.T) {
	text := strings.Replace(page(t, result("", sizes...)), "</main>", "</main><script>document.title='owned'</script>", 1)
	b := drawn(t, text)
	if title := tab.Eval[string](b, "document.title"); title == "owned" {
		t.Error("a foreign script ran")
	}
	if mistakes := b.Mistakes(); len(mistakes) != 1 || !strings.Contains(mistakes[0], "Content Security Policy") {
		t.Errorf("%q", mistakes)
	}
}

// With GPURDMA_SCREENSHOTS=DIRECTORY the page is written there, and pictures of it: for people to look at.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("GPURDMA_SCREENSHOTS")
	if dir == "" {
		t.Skip("GPURDMA_SCREENSHOTS names no directory")
	}
	text := page(t, result("", sizes...))
	if err := os.WriteFile(filepath.Join(dir, "bench.html"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for how, action := range tab.Media {
		b := drawn(t, text, action)
		png := tab.Get(b, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(dir, "bench-"+how+".png"), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
