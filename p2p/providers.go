// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/placement"
)

// providerOf are the names of providers by the driver of the function.
var providerOf = map[string]string{
	"mlx5_core": "mlx5", "mlx4_core": "mlx4", "efa": "efa", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma", "mana": "mana",
	"ionic": "ionic", "cxgb4": "cxgb4", "hns3": "hns", "qede": "qedr", "erdma": "erdma",
}

// providers goes the way of libibverbs: a file of configuration names the provider,
// and a library of that name has the private interface of this libibverbs.
func (l *look) providers() {
	var names []string
	var looked bool
	for _, dir := range []string{"etc/libibverbs.d", "usr/local/etc/libibverbs.d"} {
		found, r := l.list(dir)
		names = append(names, found...)
		looked = looked || r.err == nil
	}
	any := false
	for _, n := range l.s.NICs {
		provider := providerOf[n.Importer.Driver]
		if n.Software {
			provider = n.software
		}
		at := []string{"/etc/libibverbs.d"}
		switch {
		case provider == "":
			continue
		case !looked:
			l.unknown(n.Name, at, "the directory is not here")
		case slices.Contains(names, provider+".driver"):
			l.provider(n.Name, provider)
		default:
			l.warn(n.Name, at, "no %s.driver", provider)
		}
		any = true
	}
	if !any {
		l.skip("no RDMA device of a driver that is known")
	}
}

// provided is what became of the search for one provider.
type provided struct {
	result Result
	where  []string
	text   string
	unread reading // with an error if that decides
}

// provider looks for a provider's library, once for all NICs that have it.
func (l *look) provider(nic, provider string) {
	p := once(l, "provider "+provider, func() provided { return l.search(provider) })
	if p.unread.err != nil {
		l.unread(nic, p.unread)
		return
	}
	l.say(p.result, nic, p.where, "%s", p.text)
}

// search looks for a provider's library: of each libibverbs that there is, for
// which one a program loads depends on the program.
func (l *look) search(provider string) provided {
	verbs := once(l, "libibverbs", l.verbsLibraries)
	if len(verbs.all) == 0 && verbs.unread.err == nil {
		return provided{text: provider + ".driver is there; no libibverbs was found that would load it"}
	}
	var good, bad []string
	var why string
	for _, v := range verbs.all {
		where, is, text := l.providerFor(v, provider)
		switch is {
		case placement.Yes:
			good = append(good, where)
		case placement.No:
			bad, why = append(bad, where), text
		default:
			return provided{where: []string{where}, text: text}
		}
	}
	switch {
	case verbs.unread.err != nil:
		return provided{unread: verbs.unread}
	case len(bad) == 0:
		return provided{result: ResultPass, where: good, text: provider}
	case len(good) == 0:
		return provided{result: ResultWarn, where: bad, text: why}
	}
	return provided{where: append(bad, good...), text: why + "; another libibverbs has it, and which one programs load is not known"}
}

// verbsLibrary is one libibverbs.
type verbsLibrary struct {
	dir string // "usr/lib64"
	reading
	names [][]string // matches of providerNames
	file  os.FileInfo
}

// verbsLibraries are all that there are. unread is a directory that may have another.
type verbsLibraries struct {
	all    []verbsLibrary
	unread reading
}

// verbsLibraries finds each library once: /lib is mostly a link to /usr/lib. Two of
// the same name in two directories are two.
func (l *look) verbsLibraries() *verbsLibraries {
	found := &verbsLibraries{}
	for _, dir := range verbsDirs {
		names, r := l.list(dir)
		if r.err != nil && !r.gone() && !errors.Is(r.err, errNotCopied) {
			found.unread = r
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "libibverbs.so.1.") {
				continue
			}
			file, _, _ := l.m.place(path.Join(dir, name))
			st, err := files.Stat(file)
			same := func(v verbsLibrary) bool { return v.file != nil && os.SameFile(v.file, st) }
			if err == nil && slices.ContainsFunc(found.all, same) {
				continue
			}
			r := l.read(dir, name)
			found.all = append(found.all, verbsLibrary{dir, r, providersIn(r.text), st})
		}
	}
	return found
}

// providerNames is how a libibverbs names the libraries of its providers: it has
// the number of its private interface, and mostly a directory.
var providerNames = regexp.MustCompile(`((?:/[\w.+@-]+)*/)?lib%s-rdmav(\d+)\.so`)

// providersIn are all matches of providerNames. A library has a hundred thousand
// bytes, which the expression takes long for: it gets the strings that may match.
func providersIn(library string) (out [][]string) {
	for {
		at := strings.Index(library, "lib%s-rdmav")
		if at < 0 {
			return out
		}
		begin := strings.LastIndexByte(library[:at], 0) + 1
		end := len(library)
		if n := strings.IndexByte(library[at:], 0); n >= 0 {
			end = at + n
		}
		out = append(out, providerNames.FindAllStringSubmatch(library[begin:end], -1)...)
		library = library[end:]
	}
}

// ProviderNames are the names of providers' libraries in a libibverbs, one a line.
func ProviderNames(library []byte) []byte {
	var out []byte
	for _, m := range providersIn(string(library)) {
		out = append(append(out, m[0]...), '\n')
	}
	return out
}

// providerFor looks for the library that one libibverbs would load. where is a file
// of which text says what is wrong with it.
func (l *look) providerFor(v verbsLibrary, provider string) (where string, is placement.Answer, text string) {
	if v.err != nil {
		return v.where, placement.AnswerUnknown, v.why()
	}
	if len(v.names) == 0 {
		return v.where, placement.AnswerUnknown, "which providers it loads is not known: it names none, as a static one does"
	}
	file := "lib" + provider + "-rdmav" + v.names[0][2] + ".so"
	dirs := []string{path.Join(v.dir, "libibverbs")}
	for _, m := range v.names {
		if m[1] != "" {
			dirs = append([]string{strings.Trim(m[1], "/")}, dirs...)
		}
	}
	others, unread := "", ""
	for i, dir := range slices.Concat(dirs, verbsDirs) { // the loader's own directories come last
		names, r := l.list(dir)
		switch {
		case errors.Is(r.err, errNotCopied) && i >= len(dirs): // few machines have all of them
		case r.err != nil && (!r.gone() || i == 0 && l.m.root != "/"):
			unread = r.where
		case slices.Contains(names, file):
			return l.whole(path.Join(dir, file))
		}
		for _, name := range names {
			if strings.HasPrefix(name, "lib"+provider+"-rdmav") {
				others = name
			}
		}
	}
	where = "/" + path.Join(dirs[0], file)
	switch {
	case others != "":
		return where, placement.No, fmt.Sprintf("%s is there, and libibverbs loads %s only: they are of different versions of rdma-core", others, file)
	case unread != "":
		return unread, placement.AnswerUnknown, fmt.Sprintf("%s may be there: that part of the machine is not here", file)
	}
	return where, placement.No, fmt.Sprintf("%s.driver is there, and no %s", provider, file)
}

// whole follows a library's links: those of rdma-core lead to another package's file.
func (l *look) whole(name string) (where string, is placement.Answer, text string) {
	file, where, _ := l.m.place(name)
	_, err := files.Stat(file)
	switch {
	case err == nil:
		return where, placement.Yes, ""
	case reading{err: err}.gone() && l.m.root == "/":
		return where, placement.No, "it is a link to what is not there"
	case reading{err: err}.gone():
		err = fs.ErrNotExist
	}
	return where, placement.AnswerUnknown, "what it leads to: " + reading{err: err}.why()
}
