// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/page/browser/tab"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// attacks are names that an attacker may give to devices and nodes.
var attacks = []string{
	`<script>hacked = 1</script>`, `</script><script>hacked = 2</script>`, `<!--<script>`, `<img src=x onerror="hacked = 3">`, `"><svg onload=hacked=4>`,
	`javascript:hacked=5`, "\u2028hacked = 6\u2029", `${hacked = 7}`, `__proto__`, `constructor`, `toString`, `'); hacked = 8; ('`, "]]>", `&lt;b&gt;`, "\x00\x07\x1b[2J", "\u202egnp.exe", strings.Repeat("x", 100_000),
	`<style>*{display:none}</style>`, `<meta http-equiv=refresh content="0;url=http://127.0.0.1:9/">`, `<base href="http://127.0.0.1:9/">`, `<link rel=stylesheet href=//127.0.0.1:9/x.css>`,
}

// poison puts an attack behind each text that a pointer leads to.
func poison(v reflect.Value, next *int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), next)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			poison(v.Field(i), next)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), next)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(v.String() + attacks[*next%len(attacks)])
			*next++
		}
	}
}

// foul is a run in which each text has an attack, but for outcomes, without which no run is read.
func foul(run result.Run) result.Run {
	next := 0
	was := run.Pairs
	run.GPUs, run.NICs, run.Pairs = append([]result.GPU{}, run.GPUs...), append([]result.NIC{}, run.NICs...), append([]result.Pair{}, run.Pairs...)
	run.Checks = append([]result.Finding{}, run.Checks...)
	poison(reflect.ValueOf(&run), &next)
	for i := range run.Pairs {
		run.Pairs[i].Outcome, run.Pairs[i].Predicted = "lost", was[i].Predicted
	}
	return run
}

// Nothing that a machine says becomes markup, runs, loads or leads away, wherever it stands.
func TestHostileTexts(t *testing.T) {
	l := corpus(t, "wrong-socket")
	run := foul(l.Run)
	plain := corpus(t, "wrong-socket")
	next := 0
	poison(reflect.ValueOf(&plain.Tree.Functions), &next)
	g := gather()
	for _, name := range attacks {
		g.add(name, 1, run)
	}
	other := run
	other.Drift = []result.Drift{{What: attacks[0], Name: attacks[1], Before: attacks[3], After: attacks[4], Change: attacks[1]}}
	other.Baseline = attacks[3]
	g.add("a", 2, other)
	g.merge.AddUnread(attacks[3], fmt.Errorf("%s", attacks[1]))
	for name, text := range map[string]string{"fleet": html(t, g.page()), "machine": html(t, page.Machine("machine0", run, plain.Tree))} {
		t.Run(name, func(t *testing.T) {
			b := tab.Open(t, text)
			if n := b.Count("main img, main svg, main style, main script, main meta, main base, main link, main iframe"); n != 0 {
				t.Errorf("%d elements of the machine's", n)
			}
			if n := b.Count("script"); n != 2 {
				t.Errorf("%d scripts", n)
			}
			// All that can be clicked is clicked.
			n := tab.Eval[int](b, "(() => { const all = [...document.querySelectorAll('main button, main summary, .grow')]; all.forEach((e) => e.click()); return all.length; })()")
			b.Settle()
			if n < 10 || tab.Eval[bool](b, "typeof hacked !== 'undefined'") {
				t.Errorf("%d clicks, or a text has run", n)
			}
			if n := b.Count("main img, main svg, main style, main script"); n != 0 {
				t.Errorf("%d elements of the machine's", n)
			}
			shown := tab.Eval[string](b, "document.querySelector('main').textContent")
			for _, want := range attacks[:5] {
				if !strings.Contains(shown, want) {
					t.Errorf("%q is not shown as it is", want)
				}
			}
		})
	}
}

// The policy of the page lets no other script run and no connection pass, even if a text became markup.
func TestPolicy(t *testing.T) {
	b := tab.Blank(t)
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(html(t, fleets["all-good"](t))), 0o600); err != nil {
		t.Fatal(err)
	}
	b.URL = "file://" + file
	b.Run(chromedp.Navigate(b.URL))
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	there := strings.TrimPrefix(server.URL, "http://")
	for what, does := range map[string]string{
		"a script":              "(() => { const s = document.createElement('script'); s.textContent = 'hacked = 1'; document.body.append(s); return typeof hacked !== 'undefined'; })()",
		"a handler":             "(() => { const d = document.createElement('div'); d.setAttribute('onclick', 'hacked = 2'); document.body.append(d); d.click(); return typeof hacked !== 'undefined'; })()",
		"a style":               "(() => { const s = document.createElement('style'); s.textContent = 'body { display: none }'; document.body.append(s); return getComputedStyle(document.body).display === 'none'; })()",
		"a style of its own":    "(() => { const d = document.createElement('div'); d.setAttribute('style', 'width: 7px'); document.body.append(d); return d.style.width === '7px'; })()",
		"a picture":             "new Promise((done) => { const i = new Image(); i.onload = () => done(true); i.onerror = () => done(false); i.src = 'http://127.0.0.1:9/x.png'; })",
		"fetch":                 "fetch('http://127.0.0.1:9/', {mode: 'no-cors'}).then(() => true, () => false)",
		"another file":          "fetch('file:///etc/passwd').then(() => true, () => false)",
		"a socket":              "new Promise((done) => { try { const s = new WebSocket('ws://127.0.0.1:9/'); s.onopen = () => done(true); s.onerror = () => done(false); } catch (e) { done(false); } })",
		"a frame":               "new Promise((done) => { const f = document.createElement('iframe'); f.onload = () => { let all = false; try { all = f.contentDocument !== null; } catch (e) { } done(all && f.contentDocument.URL.startsWith('http')); }; f.src = 'http://127.0.0.1:9/'; document.body.append(f); })",
		"another base of links": "(() => { const e = document.createElement('base'); e.href = 'http://127.0.0.1:9/'; document.head.append(e); const a = document.createElement('a'); a.href = 'x'; return a.href.startsWith('http'); })()",
	} {
		if tab.Eval[bool](b, strings.ReplaceAll(does, "127.0.0.1:9", there)) {
			t.Errorf("%s is let through", what)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests have come", n)
	}
	refused, mistakes := 0, b.Mistakes()
	for _, m := range mistakes {
		if strings.Contains(m, "Content Security Policy") {
			refused++
		}
	}
	if refused < 6 {
		t.Errorf("the policy has refused %d times: %q", refused, mistakes)
	}
	for _, url := range b.Requests() {
		if strings.HasPrefix(url, "ws:") || strings.HasPrefix(url, "http") && !strings.Contains(strings.Join(mistakes, " "), url) {
			t.Errorf("the page asks for %s", url)
		}
	}
}

// Without scripts the page says how the fleet is, and what to do.
func TestWithoutScripts(t *testing.T) {
	b := tab.Open(t, html(t, fleets["few-bad"](t)), tab.Command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	text := tab.Get(b, chromedp.Text(chromedp.CSS("#page")))
	if !strings.Contains(text, "5 of 385 nodes fail.") || !strings.Contains(text, "scripts turned off") {
		t.Error(text)
	}
}
