// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// module is the path of the module whose comments are read.
const module = "github.com/gpurdma/gpurdma"

// comments reads the comments of types, their fields and their constants from the source.
type comments struct {
	packages map[string]map[string]*typeComments // by the path of the package, and the name of the type
}

// typeComments are the comments of one type, each in one line.
type typeComments struct {
	text   string
	fields map[string]string // by the name of the field
	values []value           // the constants of the type, in their order
	// like is the type with the same fields, of a type that is declared as another one.
	like struct{ pkg, name string }
}

// value is a constant of a type.
type value struct {
	constant constant.Value
	text     string
}

// of returns the comments of a type; nil if it has no name, or is of another module.
func (c *comments) of(t reflect.Type) (*typeComments, error) {
	return c.named(t.PkgPath(), t.Name())
}

func (c *comments) named(pkg, name string) (*typeComments, error) {
	rel, ok := strings.CutPrefix(pkg+"/", module+"/")
	if !ok || name == "" {
		return nil, nil
	}
	if c.packages == nil {
		c.packages = map[string]map[string]*typeComments{}
	}
	all, ok := c.packages[rel]
	if !ok {
		var err error
		if all, err = read(rel); err != nil {
			return nil, err
		}
		c.packages[rel] = all
	}
	t := all[name]
	if t == nil {
		return nil, fmt.Errorf("no source of %s in %s", name, rel)
	}
	if t.fields == nil && t.like.name != "" {
		other, err := c.named(t.like.pkg, t.like.name)
		if err != nil {
			return nil, err
		}
		if other != nil {
			t.fields = other.fields
		}
	}
	return t, nil
}

// read reads the comments of a package, its tests included: a test may declare how a document is written.
func read(rel string) (map[string]*typeComments, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, rel, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(f.Name.Name, "_test") {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go files in %s", filepath.Join(dir, rel))
	}
	r := reader{all: map[string]*typeComments{}, info: types.Info{Defs: map[*ast.Ident]types.Object{}}}
	// Only the values of constants are of interest: a package without the others does not compile.
	config := types.Config{Error: func(error) {}, Importer: noImports{}, IgnoreFuncBodies: true}
	_, _ = config.Check(rel, fset, files, &r.info)
	if r.pkg, err = doc.NewFromFiles(fset, files, module+"/"+rel, doc.AllDecls|doc.PreserveAST); err != nil {
		return nil, err
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				r.declaration(f, g)
			}
		}
	}
	return r.all, nil
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// reader collects the comments of a package.
type reader struct {
	pkg  *doc.Package
	info types.Info
	all  map[string]*typeComments
}

func (r *reader) declaration(f *ast.File, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			group := g.Doc
			if g.Lparen.IsValid() {
				group = nil
			}
			t := r.named(s.Name.Name)
			t.text, _, _ = strings.Cut(r.text(group, s.Doc, s.Comment), "\n")
			var json map[string]string
			switch x := s.Type.(type) {
			case *ast.StructType:
				t.fields, json = r.fields(x)
			case *ast.SelectorExpr:
				t.like.pkg, t.like.name = imported(f, x.X), x.Sel.Name
			}
			t.text = asInJSON(t.text, s.Name.Name, json)
		case *ast.ValueSpec:
			for _, name := range s.Names {
				c, ok := r.info.Defs[name].(*types.Const)
				if !ok || name.Name == "_" {
					continue
				}
				if n, ok := c.Type().(*types.Named); ok {
					t := r.named(n.Obj().Name())
					t.values = append(t.values, value{c.Val(), ofConstant(name.Name, r.line(s.Doc, s.Comment))})
				}
			}
		}
	}
}

// imported is the path of the package that has this name in a file.
func imported(f *ast.File, name ast.Expr) string {
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		local := path.Base(p)
		if i.Name != nil {
			local = i.Name.Name
		}
		if n, ok := name.(*ast.Ident); err == nil && ok && local == n.Name {
			return p
		}
	}
	return ""
}

// named returns the comments of the type of this name, to which the caller adds: constants may stand before it.
func (r *reader) named(name string) *typeComments {
	if r.all[name] == nil {
		r.all[name] = &typeComments{}
	}
	return r.all[name]
}

// fields are the comments of the fields, which name other fields as JSON does, and these names.
func (r *reader) fields(s *ast.StructType) (out, json map[string]string) {
	out, json = map[string]string{}, map[string]string{}
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			out[name.Name] = r.line(f.Doc, f.Comment)
			if f.Tag != nil {
				tag, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
				if tag != "" && tag != "-" {
					json[name.Name] = tag
				}
			}
		}
	}
	for name, text := range out {
		out[name] = asInJSON(text, name, json)
	}
	return out, json
}

var (
	word    = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`)
	acronym = regexp.MustCompile(`^[A-Z0-9]+s?$`)
)

// asInJSON writes a comment as a reader of JSON needs it: without "Name is" before the rest, and fields have
// their names in JSON. A word with a capital at the beginning of a sentence, or one of capitals only, need not be
// the name of a field.
func asInJSON(text, own string, json map[string]string) string {
	for _, verb := range []string{" is ", " are ", " has ", " says that ", " says "} {
		if rest, ok := strings.CutPrefix(text, own+verb); ok {
			text = rest
		}
	}
	var out strings.Builder
	end := 0
	for _, at := range word.FindAllStringIndex(text, -1) {
		w := text[at[0]:at[1]]
		out.WriteString(text[end:at[0]])
		end = at[1]
		inside := at[0] > 0 && !strings.HasSuffix(text[:at[0]], ". ")
		many := strings.ContainsFunc(w[1:], unicode.IsUpper) // "RegTime" is no word of a sentence
		if name := json[w]; name != "" && !acronym.MatchString(w) && (inside || many || w == own && at[0] == 0) {
			w = name
		}
		out.WriteString(w)
	}
	return out.String() + text[end:]
}

// ofConstant is the comment of a constant without its name.
func ofConstant(name, text string) string {
	for _, begin := range []string{": ", " is ", " "} {
		if rest, ok := strings.CutPrefix(text, name+begin); ok {
			return rest
		}
	}
	return text
}

// line writes comments in one plain line.
func (r *reader) line(groups ...*ast.CommentGroup) string {
	return strings.ReplaceAll(r.text(groups...), "\n", " ")
}

// forGo is a reference to a name in Go, which tells a reader of JSON nothing.
var forGo = regexp.MustCompile(` \(\[[A-Za-z0-9.]+\]\)`)

// text writes comments with a line for each paragraph.
func (r *reader) text(groups ...*ast.CommentGroup) string {
	var parts []string
	for _, g := range groups {
		if g == nil {
			continue
		}
		printer := r.pkg.Printer()
		printer.TextWidth = -1
		text := string(printer.Text(r.pkg.Parser().Parse(forGo.ReplaceAllString(g.Text(), ""))))
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			if line := strings.Join(strings.Fields(paragraph), " "); line != "" {
				parts = append(parts, line)
			}
		}
	}
	return strings.Join(parts, "\n")
}
