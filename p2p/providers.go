// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"io/fs"
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
			provider = "rxe"
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

// provider looks for a provider's library: of each libibverbs that there is, for
// which one a program loads depends on the program.
func (l *look) provider(nic, provider string) {
	libraries, unread := l.verbsLibraries()
	if len(libraries) == 0 && unread.err == nil {
		l.unknown(nic, nil, "%s.driver is there; no libibverbs was found that would load it", provider)
		return
	}
	var good, bad []string
	var why string
	for _, v := range libraries {
		where, is, text := l.providerFor(v, provider)
		switch is {
		case placement.Yes:
			good = append(good, where)
		case placement.No:
			bad, why = append(bad, where), text
		default:
			l.unknown(nic, []string{where}, "%s", text)
			return
		}
	}
	switch {
	case unread.err != nil:
		l.unread(nic, unread)
	case len(bad) == 0:
		l.pass(nic, good, "%s", provider)
	case len(good) == 0:
		l.warn(nic, bad, "%s", why)
	default:
		l.unknown(nic, append(bad, good...), "%s; another libibverbs has it, and which one programs load is not known", why)
	}
}

// verbsLibrary is one libibverbs.
type verbsLibrary struct {
	dir string // "usr/lib64"
	reading
}

// verbsLibraries are all there are, each once: /lib is mostly a link to /usr/lib.
// unread is a directory that may have another.
func (l *look) verbsLibraries() (out []verbsLibrary, unread reading) {
	seen := map[string]bool{}
	for _, dir := range verbsDirs {
		names, r := l.list(dir)
		if r.err != nil && !r.gone() && !errors.Is(r.err, errNotCopied) {
			unread = r
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "libibverbs.so.1.") || seen[name] {
				continue
			}
			seen[name] = true
			out = append(out, verbsLibrary{dir, l.read(dir, name)})
		}
	}
	return out, unread
}

// providerNames is how a libibverbs names the libraries of its providers: it has
// the number of its private interface, and mostly a directory.
var providerNames = regexp.MustCompile(`((?:/[\w.+@-]+)*/)?lib%s-rdmav(\d+)\.so`)

// ProviderNames are the names of providers' libraries in a libibverbs, one a line.
func ProviderNames(library []byte) []byte {
	var out []byte
	for _, m := range providerNames.FindAll(library, -1) {
		out = append(append(out, m...), '\n')
	}
	return out
}

// providerFor looks for the library that one libibverbs would load. where is a file
// of which text says what is wrong with it.
func (l *look) providerFor(v verbsLibrary, provider string) (where string, is placement.Answer, text string) {
	if v.err != nil {
		return v.where, placement.AnswerUnknown, v.why()
	}
	m := providerNames.FindStringSubmatch(v.text)
	if m == nil {
		return v.where, placement.AnswerUnknown, "which providers it loads is not known: it names none, as a static one does"
	}
	file := "lib" + provider + "-rdmav" + m[2] + ".so"
	dirs := []string{path.Join(v.dir, "libibverbs")}
	for _, m := range providerNames.FindAllStringSubmatch(v.text, -1) {
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
