// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// line is a line of text for people.
type line struct {
	number int
	text   string
}

// readerOf returns what reads the texts for people in a file: its comments, and its messages. It is nil for files
// that have none of ours.
func readerOf(name string) func(name string, src []byte) ([]line, error) {
	switch ext := path.Ext(name); {
	case ext == ".go":
		return textsOfGo
	case ext == ".md":
		return linesOf
	case slices.Contains([]string{".c", ".h", ".S", ".js", ".css"}, ext):
		return textsOfC
	case ext == ".html":
		return textsOfHTML
	case ext == ".patch":
		return textsOfPatch
	case slices.Contains([]string{
		".sh", ".mk", ".yaml", ".yml", ".py", ".conf", ".config", ".service", ".timer",
		".postinst", ".postrm", ".postun", ".preun", ".prerm",
	}, ext), ext == "" && path.Base(name) != "LICENSE":
		return textsOfScript
	}
	return nil
}

// isMessage reports whether a string is one for people: it has three words or more.
func isMessage(s string) bool { return len(strings.Fields(s)) > 2 }

// textsOfGo are the lines of comments of a Go file, and those of its messages outside tests.
func textsOfGo(name string, src []byte) ([]line, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, group := range f.Comments {
		for _, c := range group.List {
			lines = append(lines, linesFrom(set.Position(c.Pos()).Line, c.Text)...)
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		return lines, nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			if text, err := strconv.Unquote(s.Value); err == nil && isMessage(text) {
				lines = append(lines, linesFrom(set.Position(s.Pos()).Line, text)...)
			}
		}
		return true
	})
	return lines, nil
}

// linesFrom are the lines of a comment or of a message that begins in a line of its file.
func linesFrom(first int, text string) (lines []line) {
	for i, s := range strings.Split(text, "\n") {
		if s = strings.Trim(s, "/* \t"); s != "" {
			lines = append(lines, line{first + i, s})
		}
	}
	return lines
}

// linesOf are the lines of a document, without headings, and without what stands in a block of code.
func linesOf(_ string, src []byte) ([]line, error) {
	var lines []line
	code := false
	s := bufio.NewScanner(bytes.NewReader(src))
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		text := strings.TrimSpace(s.Text())
		if strings.HasPrefix(text, "```") {
			code = !code
			continue
		}
		if text != "" && !code && !strings.HasPrefix(text, "#") {
			lines = append(lines, line{n, text})
		}
	}
	return lines, s.Err()
}

// textC is a comment or a string in C.
var textC = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|'(?:[^'\\\n]|\\.)'|"(?:[^"\\\n]|\\.)*"`)

// textsOfC are the lines of comments and the messages of a file in C, or in a language whose comments are the same.
func textsOfC(_ string, src []byte) (lines []line, err error) {
	for _, at := range textC.FindAllIndex(src, -1) {
		text := string(src[at[0]:at[1]])
		if text[0] == '"' || text[0] == '\'' {
			if text = text[1 : len(text)-1]; !isMessage(text) {
				continue
			}
		}
		lines = append(lines, linesFrom(1+bytes.Count(src[:at[0]], []byte("\n")), text)...)
	}
	return lines, nil
}

// textsOfPatch are the message of a patch, and the comments and messages in C that it adds.
func textsOfPatch(name string, src []byte) ([]line, error) {
	message, changes, _ := strings.Cut(string(src), "\n---\n")
	lines := linesFrom(1, message)
	before := strings.Count(message, "\n") + 2
	added := strings.Split(changes, "\n")
	for i, s := range added {
		after, ok := strings.CutPrefix(s, "+")
		if !ok || strings.HasPrefix(s, "+++ ") {
			after = ""
		}
		added[i] = after
	}
	more, err := textsOfC(name, []byte(strings.Join(added, "\n")))
	for _, l := range more {
		lines = append(lines, line{before + l.number, l.text})
	}
	return lines, err
}

// These match a comment that begins with "#", a string, the beginning of a text up to a word (here-document), and the
// tags of HTML.
var (
	commentOfScript = regexp.MustCompile(`(?:^|\s)#+ (.*)$`)
	messageOfScript = regexp.MustCompile(`"([^"]*)"|'([^']*)'`)
	hereDocument    = regexp.MustCompile(`<<-?\s*["']?([A-Z_]+)\b`)
	tagOfHTML       = regexp.MustCompile(`<[^>]*>`)
)

// textsOfScript are the lines of comments and the messages of a shell script, or of a file whose comments are the
// same.
func textsOfScript(_ string, src []byte) (lines []line, err error) {
	until := ""
	for i, s := range strings.Split(string(src), "\n") {
		if until != "" {
			if strings.TrimSpace(s) == until {
				until = ""
			} else if isMessage(s) {
				lines = append(lines, line{i + 1, strings.TrimSpace(s)})
			}
			continue
		}
		if c := commentOfScript.FindStringSubmatch(s); c != nil {
			lines = append(lines, line{i + 1, c[1]})
		}
		for _, m := range messageOfScript.FindAllStringSubmatch(s, -1) {
			if text := m[1] + m[2]; isMessage(text) {
				lines = append(lines, line{i + 1, text})
			}
		}
		if m := hereDocument.FindStringSubmatch(s); m != nil {
			until = m[1]
		}
	}
	return lines, nil
}

// textsOfHTML are the lines of text of a page, and its attributes.
func textsOfHTML(name string, src []byte) (lines []line, err error) {
	for i, s := range strings.Split(string(src), "\n") {
		if text := strings.TrimSpace(tagOfHTML.ReplaceAllString(s, " ")); isMessage(text) {
			lines = append(lines, line{i + 1, text})
		}
	}
	attributes, err := textsOfScript(name, src)
	return append(lines, attributes...), err
}
