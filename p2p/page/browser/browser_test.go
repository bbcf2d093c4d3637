// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// program is Debian's browser without a window.
const program = "chromium-headless-shell"

// needed is set where the browser and axe-core have to be there: by `make test-page`.
const needed = "GPURDMA_NEED_BROWSER"

// absent ends a test that lacks something: it fails where that has to be there.
func absent(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(needed) != "" {
		t.Fatal(what)
	}
	t.Skip(what + ": make test-page installs it")
}

var browser struct {
	once sync.Once
	ctx  context.Context
	end  func()
	err  error
}

func TestMain(m *testing.M) {
	status := m.Run()
	if browser.end != nil {
		browser.end()
	}
	os.Exit(status)
}

// started is the browser, one for all tests.
func started(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		absent(t, "no "+program)
	}
	browser.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1400, 1000), chromedp.DisableGPU)
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox) // it has none for root, and reads files of these tests only
		}
		alloc, end1 := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, end2 := chromedp.NewContext(alloc)
		browser.ctx, browser.end = ctx, func() { end2(); end1() }
		browser.err = chromedp.Do(ctx)
	})
	if browser.err != nil {
		t.Fatal(browser.err)
	}
	return browser.ctx
}

// tab is a page in the browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	requests []string
	mistakes []string
}

// limit is when a test is taken to hang.
const limit = 5 * time.Minute

// open shows a page, and waits until its script has drawn it. When the test ends, the page must have asked for nothing,
// and the script must have made no mistake.
func open(t *testing.T, text string, before ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := blank(t)
	b.url = "file://" + file
	b.run(before...)
	b.run(chromedp.Navigate(b.url))
	t.Cleanup(b.quiet)
	return b
}

// blank is an empty page, whose requests and errors are listed.
func blank(t *testing.T) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(started(t))
	ctx, cancel := context.WithTimeout(ctx, limit)
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(func() { cancel(); end() })
	b.run()
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	b.run(command(network.Enable, network.EnableParams{}))
	b.run(command(log.Enable, cdp.Empty{}))
	return b
}

// command is a command of the browser as an action.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// heard lists what a page should not do.
func (b *tab) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventWebSocketCreated:
		b.requests = append(b.requests, e.URL)
	case *runtime.EventExceptionThrown:
		b.mistakes = append(b.mistakes, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.mistakes = append(b.mistakes, fmt.Sprint(e.Type, ": ", len(e.Args), " values"))
	case *log.EventEntryAdded:
		b.mistakes = append(b.mistakes, e.Entry.Text)
	}
}

// quiet fails if the page has asked for anything but itself, or has made a mistake.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.requests {
		if url != b.url && !strings.HasPrefix(url, "data:") {
			b.t.Errorf("the page asks for %s", url)
		}
	}
	if len(b.requests) == 0 {
		b.t.Error("not even the page itself is among the requests")
	}
	for _, m := range b.mistakes {
		b.t.Error(m)
	}
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// get carries out an action that has a value.
func get[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// eval returns the value of an expression of JavaScript.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return get(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// count is how many elements a selector finds.
func (b *tab) count(selector string) int {
	b.t.Helper()
	return eval[int](b, "document.querySelectorAll("+quoted(selector)+").length")
}

// text is what a reader sees of the first element.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return strings.Join(strings.Fields(eval[string](b, "(document.querySelector("+quoted(selector)+") || {innerText: 'NOTHING'}).innerText")), " ")
}

// has fails if the element does not show these words.
func (b *tab) has(selector string, words ...string) {
	b.t.Helper()
	text := b.text(selector)
	for _, w := range words {
		if !strings.Contains(text, w) {
			b.t.Errorf("%s does not have %q: %s", selector, w, text)
		}
	}
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector)))
}

// choose sets a list of choices, as a person does.
func (b *tab) choose(selector, value string) {
	b.t.Helper()
	eval[bool](b, "(() => { const s = document.querySelector("+quoted(selector)+"); s.value = "+quoted(value)+"; s.dispatchEvent(new Event('change')); return s.value === "+quoted(value)+"; })()")
}

// press types keys where the focus is.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.run(chromedp.KeyEvent(k))
	}
	b.settle()
}

// settle waits until what was changed has been drawn.
func (b *tab) settle() {
	b.t.Helper()
	eval[bool](b, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
}

func quoted(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// media are how a page can be looked at.
var media = map[string]chromedp.Action[chromedp.Void]{
	"light": command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}}),
	"dark":  command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}),
	"print": command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}),
}
