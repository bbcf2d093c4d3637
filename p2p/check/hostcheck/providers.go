// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// providerOf has the name of the provider for each driver of a NIC's PCI function.
var providerOf = map[string]string{
	"mlx5_core": "mlx5", "mlx4_core": "mlx4", "efa": "efa", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma", "mana": "mana",
	"ionic": "ionic", "cxgb4": "cxgb4", "hns3": "hns", "qede": "qedr", "erdma": "erdma",
}

// providers searches as libibverbs does: a configuration file names the provider, and the provider's
// library has the number of this libibverbs' private interface in its name.
func providers(l *check.Look) {
	var names []string
	var looked bool
	for _, dir := range []string{"etc/libibverbs.d", "usr/local/etc/libibverbs.d"} {
		found, r := l.List(dir)
		names = append(names, found...)
		looked = looked || r.Err == nil
	}
	any := false
	for _, n := range l.Subject.NICs {
		name := providerOf[n.Importer.Driver]
		if n.Software {
			name = n.SoftwareKind
		}
		at := []string{"/etc/libibverbs.d"}
		switch {
		case name == "":
			continue
		case !looked:
			l.Unknown(n.Name, at, "the directory is not here")
		case slices.Contains(names, name+".driver"):
			provider(l, n.Name, name)
		default:
			l.Warn(n.Name, at, "no %s.driver", name)
		}
		any = true
	}
	if !any {
		l.Skip("no RDMA device of a driver that is known")
	}
}

// provided is the result of the search for one provider.
type provided struct {
	result p2p.Result
	where  []string
	text   string
	unread machine.Reading // a directory or file that could not be read; if its Err is set, the result is unknown
}

// provider adds a finding about a NIC's provider. It searches for the provider once for all NICs of it.
func provider(l *check.Look, nic, provider string) {
	p := check.Once(l, "provider "+provider, func() provided { return search(l, provider) })
	if p.unread.Err != nil {
		l.Unread(nic, p.unread)
		return
	}
	l.Say(p.result, nic, p.where, "%s", p.text)
}

// search looks for the provider's library that each libibverbs of the machine would load, because programs may
// load any of these libibverbs.
func search(l *check.Look, provider string) provided {
	verbs := check.Once(l, "libibverbs", func() *verbsLibraries { return findVerbsLibraries(l) })
	if len(verbs.all) == 0 && verbs.unread.Err == nil {
		return provided{text: provider + ".driver is there; no libibverbs was found that would load it"}
	}
	var good, bad []string
	var why string
	for _, v := range verbs.all {
		where, is, text := providerFor(l, v, provider)
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
	case verbs.unread.Err != nil:
		return provided{unread: verbs.unread}
	case len(bad) == 0:
		return provided{result: p2p.ResultPass, where: good, text: provider}
	case len(good) == 0:
		return provided{result: p2p.ResultWarn, where: bad, text: why}
	}
	return provided{where: append(bad, good...), text: why + "; another libibverbs has it, and which one programs load is not known"}
}

// verbsLibrary is one libibverbs.
type verbsLibrary struct {
	dir string // "usr/lib64"
	machine.Reading
	names [][]string // what check.ProvidersIn returns
	file  os.FileInfo
}

// verbsLibraries are all libibverbs of the machine. unread is a directory that could not be listed, and may have
// another libibverbs.
type verbsLibraries struct {
	all    []verbsLibrary
	unread machine.Reading
}

// findVerbsLibraries finds each library once, although /lib is mostly a link to /usr/lib. Two files
// of the same name in two directories are two libraries.
func findVerbsLibraries(l *check.Look) *verbsLibraries {
	found := &verbsLibraries{}
	for _, dir := range check.VerbsDirs {
		names, r := l.List(dir)
		if r.Err != nil && !r.Gone() && !errors.Is(r.Err, machine.ErrNotCopied) {
			found.unread = r
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "libibverbs.so.1.") {
				continue
			}
			file, _, _ := l.Machine.Locate(path.Join(dir, name))
			st, err := files.Stat(file)
			same := func(v verbsLibrary) bool { return v.file != nil && files.SameFile(v.file, st) }
			if err == nil && slices.ContainsFunc(found.all, same) {
				continue
			}
			r := l.Read(dir, name)
			found.all = append(found.all, verbsLibrary{dir, r, check.ProvidersIn(r.Text), st})
		}
	}
	return found
}

// providerFor looks for the provider's library that one libibverbs would load, and returns its file in where. If
// there is none, or that is not known, where is the file that shows it, and text says why.
func providerFor(l *check.Look, v verbsLibrary, provider string) (where string, is placement.Answer, text string) {
	if v.Err != nil {
		return v.Where, placement.AnswerUnknown, v.Why()
	}
	if len(v.names) == 0 {
		return v.Where, placement.AnswerUnknown, "which providers it loads is not known: it names none, as a static one does"
	}
	file := "lib" + provider + "-rdmav" + v.names[0][2] + ".so"
	dirs := []string{path.Join(v.dir, "libibverbs")}
	for _, m := range v.names {
		if m[1] != "" {
			dirs = append([]string{strings.Trim(m[1], "/")}, dirs...)
		}
	}
	others, unread := "", ""
	for i, dir := range slices.Concat(dirs, check.VerbsDirs) { // the directories of the dynamic loader come last
		names, r := l.List(dir)
		switch {
		case errors.Is(r.Err, machine.ErrNotCopied) && i >= len(dirs): // a copy has only some of the loader's directories
		case r.Err != nil && (!r.Gone() || i == 0 && l.Machine.Root != "/"):
			unread = r.Where
		case slices.Contains(names, file):
			return whole(l, path.Join(dir, file))
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

// whole checks that the links of a library lead to a file: rdma-core's links lead to a file of another package.
func whole(l *check.Look, name string) (where string, is placement.Answer, text string) {
	file, where, _ := l.Machine.Locate(name)
	_, err := files.Stat(file)
	switch {
	case err == nil:
		return where, placement.Yes, ""
	case machine.Reading{Err: err}.Gone() && l.Machine.Root == "/":
		return where, placement.No, "it is a link to a file that does not exist"
	case machine.Reading{Err: err}.Gone():
		err = fs.ErrNotExist
	}
	return where, placement.AnswerUnknown, "the target of the link: " + machine.Reading{Err: err}.Why()
}
