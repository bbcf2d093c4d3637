// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A drawing of the documents has a title and a description for a reader that does not see it, has no other
// file in it, and has colours for a dark screen.
func TestPicturesAreReadable(t *testing.T) {
	dir := root(t)
	files := tracked(t, "docs/images/*.svg")
	if len(files) < 3 {
		t.Fatalf("only %q", files)
	}
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var svg struct {
			XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
			Role    string   `xml:"role,attr"`
			By      string   `xml:"aria-labelledby,attr"`
			Title   struct {
				ID   string `xml:"id,attr"`
				Text string `xml:",chardata"`
			} `xml:"title"`
			Desc struct {
				ID   string `xml:"id,attr"`
				Text string `xml:",chardata"`
			} `xml:"desc"`
			Style string `xml:"style"`
		}
		if err := xml.Unmarshal(data, &svg); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if svg.Role != "img" || svg.By != svg.Title.ID+" "+svg.Desc.ID || len(svg.Title.Text) < 20 || len(svg.Desc.Text) < 100 {
			t.Errorf("%s has no title and description that a screen reader finds: %+v", name, svg)
		}
		if !strings.Contains(svg.Style, "prefers-color-scheme: dark") {
			t.Errorf("%s has no colours for a dark screen", name)
		}
		if strings.Contains(string(data), "href") || strings.Contains(string(data), "url(") {
			t.Errorf("%s needs another file", name)
		}
	}
}
