// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/gpurdma/gpurdma/p2p/page/browser/tab"
)

// With GPURDMA_SCREENSHOTS=DIRECTORY the pages are written there, and pictures of them: for people to look at.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("GPURDMA_SCREENSHOTS")
	if dir == "" {
		t.Skip("GPURDMA_SCREENSHOTS names no directory")
	}
	only := os.Getenv("GPURDMA_SCREENSHOTS_OF") // a pattern of names
	for name, text := range all(t) {
		if ok, err := filepath.Match(only, name); err != nil || only != "" && !ok {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name+".html"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, how := range []string{"light", "dark", "print"} {
			b := tab.Open(t, text, tab.Media[how])
			b.Settle()
			png := tab.Get(b, chromedp.FullScreenshot(100))
			if err := os.WriteFile(filepath.Join(dir, name+"-"+how+".png"), png, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
