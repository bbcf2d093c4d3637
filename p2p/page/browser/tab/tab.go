// SPDX-License-Identifier: Apache-2.0

package tab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// needed is set where the browser, and what its tests need besides, has to be there: by `make test-page` and
// `make test-bench-page`.
const needed = "GPURDMA_NEED_BROWSER"

// Absent ends a test that lacks something: it fails where that has to be there.
func Absent(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(needed) != "" {
		t.Fatal(what)
	}
	t.Skip(what + ": make test-page and make test-bench-page install what their tests need")
}

var browser struct {
	once sync.Once
	ctx  context.Context
	end  func()
	err  error
}

// Main is for TestMain: it runs the tests, and ends the browser.
func Main(m *testing.M) {
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
		Absent(t, "no "+program)
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

// Tab is a page in the browser.
type Tab struct {
	// URL is that of the page, which [Tab.Quiet] lets pass.
	URL string

	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string
	mistakes []string
}

// limit is when a test is taken to hang.
const limit = 5 * time.Minute

// Open shows a page, whose script has run then; [Tab.Settle] waits until the browser has drawn it. When the test ends,
// the page must have asked for nothing, and the script must have made no mistake.
func Open(t *testing.T, text string, before ...chromedp.Action[chromedp.Void]) *Tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Blank(t)
	b.URL = "file://" + file
	b.Run(before...)
	b.Run(chromedp.Navigate(b.URL))
	t.Cleanup(b.Quiet)
	return b
}

// Blank is an empty page, whose requests and errors are listed.
func Blank(t *testing.T) *Tab {
	t.Helper()
	ctx, end := chromedp.NewContext(started(t))
	ctx, cancel := context.WithTimeout(ctx, limit)
	b := &Tab{t: t, ctx: ctx}
	t.Cleanup(func() { cancel(); end() })
	b.Run()
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	b.Run(Command(network.Enable, network.EnableParams{}))
	b.Run(Command(log.Enable, cdp.Empty{}))
	return b
}

// Command is a command of the browser as an action.
func Command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// heard lists what a page should not do.
func (b *Tab) heard(event any) {
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

// Quiet fails if the page has asked for anything but itself, or has made a mistake.
func (b *Tab) Quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.requests {
		if url != b.URL && !strings.HasPrefix(url, "data:") {
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

// Requests are the addresses that the page has asked for.
func (b *Tab) Requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

// Mistakes are what the script has done wrong, and what the browser has refused. Quiet finds only those that come later.
func (b *Tab) Mistakes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	its := b.mistakes
	b.mistakes = nil
	return its
}

// Run carries out actions.
func (b *Tab) Run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// Get carries out an action that has a value.
func Get[T any](b *Tab, action chromedp.Action[T]) T {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// Eval returns the value of an expression of JavaScript.
func Eval[T any](b *Tab, expression string) T {
	b.t.Helper()
	return Get(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Count is how many elements a selector finds.
func (b *Tab) Count(selector string) int {
	b.t.Helper()
	return Eval[int](b, "document.querySelectorAll("+quoted(selector)+").length")
}

// Text is what a reader sees of the first element.
func (b *Tab) Text(selector string) string {
	b.t.Helper()
	return strings.Join(strings.Fields(Eval[string](b, "(document.querySelector("+quoted(selector)+") || {innerText: 'NOTHING'}).innerText")), " ")
}

// Has fails if the element does not show these words.
func (b *Tab) Has(selector string, words ...string) {
	b.t.Helper()
	text := b.Text(selector)
	for _, w := range words {
		if !strings.Contains(text, w) {
			b.t.Errorf("%s does not have %q: %s", selector, w, text)
		}
	}
}

// Click clicks on the first element that a selector finds.
func (b *Tab) Click(selector string) {
	b.t.Helper()
	b.Run(chromedp.Click(chromedp.CSS(selector)))
}

// Choose sets a list of choices, as a person does.
func (b *Tab) Choose(selector, value string) {
	b.t.Helper()
	Eval[bool](b, "(() => { const s = document.querySelector("+quoted(selector)+"); s.value = "+quoted(value)+"; s.dispatchEvent(new Event('change')); return s.value === "+quoted(value)+"; })()")
}

// Press types keys where the focus is.
func (b *Tab) Press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.Run(chromedp.KeyEvent(k))
	}
	b.Settle()
}

// Settle waits until what was changed has been drawn.
func (b *Tab) Settle() {
	b.t.Helper()
	Eval[bool](b, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
}

func quoted(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// Media are how a page can be looked at.
var Media = map[string]chromedp.Action[chromedp.Void]{
	"light": Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}}),
	"dark":  Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}),
	"print": Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}),
}
