// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/stationtest"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

func pageOf(t *testing.T, r *Result) (text string, root *html.Node) {
	t.Helper()
	var b strings.Builder
	if err := r.WritePage(&b, "v1.2-test"); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), root
}

// nodes are the elements of a name.
func nodes(root *html.Node, name string) (list []*html.Node) {
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			list = append(list, n)
		}
	}
	return list
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && (d.Parent == n || d.Parent.Data != "script" && d.Parent.Data != "style") {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// A page does not leave it at "direct" where it is not known that the bytes are in the GPU.
func TestPlaceIsNotKnown(t *testing.T) {
	const says = "Whether the bytes of direct memory are in the GPU was not looked at"
	for name, c := range map[string]struct {
		change func(*Result)
		warns  bool
	}{
		"not traced":  {func(*Result) {}, true},
		"traced":      {func(r *Result) { r.Local.Placement = &placement.Placement{} }, false},
		"host memory": {func(r *Result) { r.Local.Path = station.Host }, false},
		"no VRAM":     {func(r *Result) { r.Local.Memory.Kind = gpualloc.KindSystem.String() }, false},
	} {
		r := sampleBench()
		c.change(r)
		if text, _ := pageOf(t, r); strings.Contains(text, says) != c.warns {
			t.Errorf("%s: it says so: %v", name, !c.warns)
		}
	}
}

// The page has every number as text, the curves as data, and what was measured where.
func TestPage(t *testing.T) {
	r := sampleBench()
	text, root := pageOf(t, r)
	var d pageData
	for _, s := range nodes(root, "script") {
		if len(s.Attr) > 0 {
			if err := json.Unmarshal([]byte(textOf(s)), &d); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(d.Curves) != 6 || len(d.Curves[0].Points) != 3 || d.Curves[1].Kind != "staged" || d.Curves[0].Points[2].Size != 1<<20 || d.Curves[0].Points[0].Bandwidth[1] != 64e6 {
		t.Errorf("%+v", d)
	}
	rows := nodes(nodes(root, "tbody")[0], "tr")
	if len(rows) != len(r.Points) || len(nodes(root, "figure")) != 4 {
		t.Errorf("%d rows, %d figures", len(rows), len(nodes(root, "figure")))
	}
	columns := len(nodes(rows[0], "td")) + len(nodes(rows[0], "th"))
	if columns != 17 || !strings.Contains(textOf(rows[1]), "staged") || !strings.Contains(textOf(rows[1]), "32.0 MB/s") {
		t.Errorf("%d columns: %q", columns, textOf(rows[1]))
	}
	all := textOf(root)
	for _, want := range []string{"dmabuf-reg bench: mlx5_0 to 10.0.0.1:7471", "Linux 7.2.12+deb13-amd64 x86_64", "mlx5_0: the only one", "asked for in VRAM", "not known: measured without --trace", "with rxe0, <registered> & well", "v1.2-test", "2026-11-29T12:00:00Z", "fewer than 64 were under way beyond 64 KiB"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q", want)
		}
	}
	// One file, without the network: nothing in it has an address but the licence of uPlot.
	for _, n := range []string{"link", "img", "iframe", "object", "base"} {
		if len(nodes(root, n)) > 0 {
			t.Errorf("there is a %s", n)
		}
	}
	for _, address := range regexp.MustCompile(`https?://[^\s"'<)]+`).FindAllString(text, -1) {
		if address != "https://github.com/leeoniya/uPlot" && address != "http://www.w3.org/2000/svg" {
			t.Errorf("there is %s", address)
		}
	}
	if len(nodes(root, "script")) != 3 || !strings.Contains(text, "default-src &#39;none&#39;") && !strings.Contains(text, "default-src 'none'") {
		t.Error(text[:1000])
	}
}

// hostile are texts that a server or a device can have.
var hostile = []string{
	"</script><script>document.title='owned'</script>", "<!--<script>", "]]><svg onload=alert(1)>", `"><img src=x onerror=alert(1)>`, "' onmouseover='alert(1)",
	"{{.Data}}", "\u2028alert(1)\u2029", "\x00\x1b[2J\a", "\xff\xfe", "javascript:alert(1)", "</style><style>*{display:none}", "&lt;script&gt;", strings.Repeat("A", 100000),
}

// hostileBench is a result all of whose foreign texts are one.
func hostileBench(text string) *Result {
	r := sampleBench()
	r.Server, r.Kernel = text, text
	r.Local.NIC, r.Local.NICReason, r.Local.Path, r.Local.Why = text, text, text, text
	r.Local.Memory.Spec, r.Local.Memory.Exporter, r.Local.Memory.Kind = text, text, text
	r.Remote.Spec, r.Remote.NIC, r.Remote.Path, r.Remote.Why = text, text, text, text
	r.Over.GID, r.Over.Peer, r.Over.Why = text, text, text
	r.NotTried = []buffer.NotTried{{Spec: text, Why: text}}
	for i := range r.Points {
		if i%3 == 0 {
			r.Points[i].Kind, r.Points[i].Op = text, text
		}
	}
	return r
}

// No text makes an element, ends a script, or is anything but text.
func TestHostilePage(t *testing.T) {
	_, clean := pageOf(t, hostileBench("text"))
	shape := func(root *html.Node) string {
		var b strings.Builder
		for n := range root.Descendants() {
			if n.Type == html.ElementNode {
				b.WriteString(n.Data)
				for _, a := range n.Attr {
					b.WriteString(" " + a.Key)
				}
				b.WriteString("\n")
			}
		}
		return b.String()
	}
	want := shape(clean)
	for _, text := range hostile {
		written, root := pageOf(t, hostileBench(text))
		if got := shape(root); got != want {
			t.Errorf("%.40q: other elements:\n%s", text, got)
		}
		if strings.Count(written, "</script>") != 3 || strings.Count(written, "</style>") != 1 {
			t.Errorf("%.40q: %d scripts end", text, strings.Count(written, "</script>"))
		}
		if !strings.Contains(text, "\x00") && !strings.Contains(text, "\xff") && !strings.Contains(textOf(root), text) {
			t.Errorf("%.40q is not in the text", text)
		}
	}
}

// A page of nothing says so, and a disk that is full is an error.
func TestEmptyPage(t *testing.T) {
	text, root := pageOf(t, &Result{})
	if len(nodes(root, "figure")) != 0 || !strings.Contains(text, "Nothing was measured") {
		t.Error(text[len(text)-3000:])
	}
	o, err := newOutput("the page", "--html", "/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	err = o.write(func(w io.Writer) error { return sampleBench().WritePage(w, "v") })
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "write the page") || !strings.Contains(err.Error(), "--html") {
		t.Error(err)
	}
}

// The parts of others have their licences.
func TestLicences(t *testing.T) {
	for file, want := range map[string]string{"../../../../LICENSES/MIT-uPlot.txt": "The MIT License", "page/README.md": "SPDX-License-Identifier: MIT", "page/uPlot.iife.min.js": "leeoniya/uPlot (v1.6.32)"} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// The page and the plots of a run over NICs in memory have its numbers, and say which kinds of memory it lacks.
func TestPageOfARun(t *testing.T) {
	p := stationtest.Dial(t, []string{"a0"}, []string{"b0"})
	f := &params{
		Flags: station.Flags{Timeout: testenv.Limit(time.Minute)}, depth: 4, batch: 2, rounds: 3, slice: time.Millisecond,
		kinds: kinds, work: []talk.Op{talk.Write, talk.Read, talk.Send}, bytes: []int64{64, 4096},
	}
	r := &Result{Begun: time.Now(), Kernel: kernel(), Local: p.Client.Side, Remote: p.Client.Server, Over: p.Client.Way, Rounds: f.rounds, Depth: f.depth, plot: newCanvas(io.Discard)}
	none, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if err := measureAll(t.Context(), &app.App{Progress: cli.NewProgress(none)}, f, p.Client, r); err != nil {
		t.Fatal(err)
	}
	if err := p.Client.HangUp(); err != nil {
		t.Error(err)
	}
	if len(r.Points) != 6 || !strings.HasPrefix(r.Kernel, "Linux ") {
		t.Fatalf("%+v", r)
	}
	for _, x := range r.Points {
		if l := x.Latency; l.P25 <= 0 || l.P25 > l.P50 || l.P50 > l.P75 || l.P75 > l.P90 {
			t.Errorf("%+v", x)
		}
	}
	var page, text strings.Builder
	if err := errors.Join((asPage{r, "v"}).Text(&page), r.Text(&text)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not measured: direct: the memory is host memory", "Fewer than 30 rounds", "write, latency: h host"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	root, err := html.Parse(strings.NewReader(page.String()))
	if err != nil {
		t.Fatal(err)
	}
	if shown := textOf(root); len(nodes(nodes(root, "tbody")[0], "tr")) != 6 || !strings.Contains(shown, "not measured: direct: the memory is host memory") || !strings.Contains(shown, r.Kernel) {
		t.Error(shown)
	}
}
