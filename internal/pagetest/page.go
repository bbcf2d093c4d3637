// SPDX-License-Identifier: Apache-2.0

package pagetest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// Block is a fenced block of a page.
type Block struct {
	Lang string // the first word behind the fence
	Line int    // of the page, of the first line of text
	Text string
}

// Page is a Markdown file.
type Page struct {
	Name    string
	Blocks  []Block
	Prose   string          // the lines outside of blocks, without code spans
	Anchors map[string]bool // of its headings
}

var (
	fence     = regexp.MustCompile("^ {0,3}(```+|~~~+)\\s*([^\\s`{]*)")
	heading   = regexp.MustCompile(`^#{1,6}\s+(.+?)\s*#*$`)
	span      = regexp.MustCompile("``[^`]+``|`[^`]+`")
	label     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	anchorTag = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
)

// Read reads a page.
func Read(t testing.TB, file string) Page {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(file, string(data))
}

// Parse reads the text of a page.
func Parse(name, text string) Page {
	p := Page{Name: name, Anchors: map[string]bool{}}
	var prose strings.Builder
	open, n := "", 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		if m := fence.FindStringSubmatch(line); m != nil {
			switch {
			case open == "":
				open = m[1]
				p.Blocks = append(p.Blocks, Block{Lang: m[2], Line: n + 1})
				prose.WriteString("\n")
				continue
			case strings.HasPrefix(m[1], open) && m[2] == "":
				open = ""
				prose.WriteString("\n")
				continue
			}
		}
		if open != "" {
			p.Blocks[len(p.Blocks)-1].Text += line + "\n"
			prose.WriteString("\n")
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			p.add(m[1])
		}
		for _, m := range anchorTag.FindAllStringSubmatch(line, -1) {
			p.Anchors[m[1]] = true
		}
		prose.WriteString(span.ReplaceAllString(line, "") + "\n")
	}
	p.Prose = prose.String()
	return p
}

// Of returns the texts of the blocks in one language.
func (p Page) Of(lang string) (out []Block) {
	for _, b := range p.Blocks {
		if b.Lang == lang {
			out = append(out, b)
		}
	}
	return out
}

// add adds the anchor of a heading, as GitHub makes it: that of a second heading of the same words ends
// with -1.
func (p *Page) add(head string) {
	head = label.ReplaceAllString(head, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(head) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			b.WriteRune(r)
		}
	}
	anchor := b.String()
	for n := 1; p.Anchors[anchor]; n++ {
		anchor = fmt.Sprintf("%s-%d", b.String(), n)
	}
	p.Anchors[anchor] = true
}
