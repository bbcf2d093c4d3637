// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"
)

// Page is the data of one HTML file.
type Page struct{ data data }

// Label puts the version of the program, and the time, on the page. It leaves out the zero time.
func (p *Page) Label(version string, made time.Time) {
	p.data.Version, p.data.Made = version, ""
	if !made.IsZero() {
		p.data.Made = made.UTC().Format("2006-01-02 15:04 UTC")
	}
}

//go:embed assets
var assets embed.FS

// assetsOf joins the files below assets with this ending, in the order of their names.
func assetsOf(ending string) string {
	entries, err := assets.ReadDir("assets")
	if err != nil {
		panic(err) // they are in the program
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ending) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err)
		}
		b.Write(text)
	}
	return b.String()
}

// hashOf is how the page's policy names a style or a script.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// frame is the page. Nothing of a machine is in it but the data, and the title and the summary, which are constants
// with numbers.
const frame = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; script-src %s; style-src %s; connect-src 'none'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>%s</title>
<style>%s</style>
</head>
<body>
<div id="page"><noscript><p>%s This page draws the rest with its own script, and the browser has scripts turned off. The text is what p2pcheck prints without --html.</p></noscript></div>
<script type="application/json" id="data">%s</script>
<script>%s</script>
</body>
</html>
`

// Write writes the HTML file. Its errors are those of w. The page has as much of the runs as its limits allow (limits.go),
// and says how much it leaves out.
func (p *Page) Write(w io.Writer) error {
	script, style := assetsOf(".js"), assetsOf(".css")
	var b bytes.Buffer
	e := json.NewEncoder(&b) // it escapes <, >, &, U+2028 and U+2029
	if err := e.Encode(p.data); err != nil {
		return err
	}
	title := html.EscapeString(p.title())
	_, err := fmt.Fprintf(w, frame, hashOf(script), hashOf(style), title, style, html.EscapeString(p.summary()), bytes.TrimSpace(b.Bytes()), script)
	return err
}

func (p *Page) title() string {
	if m := p.data.Machine; m != nil {
		if m.Name != none {
			return fmt.Sprintf("GPUs and NICs of %s - p2pcheck", p.data.Texts[m.Name])
		}
		return "GPUs and NICs of one machine - p2pcheck"
	}
	return fmt.Sprintf("GPUs and NICs of %d nodes - p2pcheck", p.nodes())
}

func (p *Page) nodes() (n int) {
	for _, r := range p.data.Rows {
		n += len(r.Nodes)
	}
	return n
}

// summary is what a browser without scripts shows.
func (p *Page) summary() string {
	if m := p.data.Machine; m != nil {
		s := m.Summary
		return fmt.Sprintf("%d of %d pairs are direct.", s.Direct, s.total())
	}
	fail := 0
	for _, r := range p.data.Rows {
		if p.data.Sorts[r.Sort].Result == "fail" {
			fail += len(r.Nodes)
		}
	}
	return fmt.Sprintf("%d of %d nodes fail.", fail, p.nodes())
}

func (c counts) total() int { return c.Direct + c.Staged + c.Refused + c.Lost + c.Broken + c.Unknown }
