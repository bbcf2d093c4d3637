// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/placement"
)

// reading is what a file says, or why nobody knows.
type reading struct {
	where string // its name on its machine: "/sys/…"
	text  string // without white space at the end
	all   string // with it
	err   error
}

// errNotCopied is for what a copy of a machine does not have, although the
// machine may.
var errNotCopied = errors.New("that part of the machine is not here")

// errUnreadable is of a link to itself: the mark of a snapshot for what could
// not be read when it was taken.
var errUnreadable = errors.New("it could not be read when this was taken, or the file does not have it")

// Unmarked says in words what the mark of a snapshot means: what could not be read
// is a link to itself in it, and the kernel's text for that tells nobody anything.
func Unmarked(text string) string {
	return strings.ReplaceAll(text, unix.ELOOP.Error(), errUnreadable.Error())
}

// at is for Finding.Where.
func (r reading) at() []string { return []string{r.where} }

// gone reports a file that is not there, where it would be if there was one.
func (r reading) gone() bool { return errors.Is(r.err, fs.ErrNotExist) }

// why is the error without the path, which Where has.
func (r reading) why() string {
	if r.gone() && r.where != "" {
		return "there is no " + path.Base(r.where)
	}
	var p *fs.PathError
	if errors.As(r.err, &p) {
		return p.Err.Error()
	}
	return r.err.Error()
}

// number reads one that must not be negative.
func (r reading) number() (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(r.text), 0, 64)
	return n, r.err == nil && err == nil
}

// line is the value behind "KEY:" or "KEY".
func (r reading) line(key string) (string, bool) {
	for line := range strings.Lines(r.text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), ":")), true
		}
	}
	return "", false
}

// readLimit is more than any file has that a check reads.
const readLimit = 4 << 20

func read(name, where, anchor string) reading {
	r := reading{where: where}
	f, err := files.Open(name)
	if err == nil {
		defer f.Close()
		var data []byte
		data, err = io.ReadAll(io.LimitReader(f, readLimit))
		r.all = string(data)
		r.text = strings.TrimRight(r.all, " \t\n\x00")
	}
	r.err = absent(err, anchor)
	return r
}

// absent doubts that a file is missing where nothing of its kind is there.
func absent(err error, anchor string) error {
	if errors.Is(err, unix.ELOOP) {
		return errUnreadable
	}
	none := strings.HasPrefix(anchor, noFiles+"/") // what is below that is no error of a directory
	if !errors.Is(err, fs.ErrNotExist) && !(none && errors.Is(err, unix.ENOTDIR)) {
		return err
	}
	if st, err := files.Stat(anchor); err != nil || !st.IsDir() {
		return errNotCopied
	}
	return err
}

// place is a file of sysfs ("sys/…"), procfs ("proc/…") or any other, and the
// directory without which its absence means nothing. What a file of the machine says
// can be part of the name: it leads nowhere else.
func (m *Machine) place(name string) (file, where, anchor string) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	where = "/" + name
	top, rest, _ := strings.Cut(name, "/")
	switch top {
	case "sys":
		return m.sys.Path(rest), where, m.sys.Path(m.sysAnchor(rest))
	case "proc":
		return m.proc.Path(rest), where, m.proc.Path(wholeProc)
	}
	return filepath.Join(m.root, name), where, filepath.Join(m.root, top)
}

// Every kernel has these, and checks do not look at them: a sysfs without the
// first and a procfs without the second are what somebody has copied of one.
const (
	wholeSys  = "class/mem"
	wholeProc = "sys/vm"
)

// sysAnchor is the directory that makes an absence in sysfs mean something. Of a
// copy somebody has chosen the directories of a class, of kernel and of a bus:
// one of them that is not there was not copied.
func (m *Machine) sysAnchor(rest string) string {
	parts := strings.Split(rest, "/")
	// A device that is taken away meanwhile takes all of its files with it.
	if len(parts) > 4 && strings.HasPrefix(rest, "bus/pci/devices/") {
		return path.Join(parts[:4]...)
	}
	chosen := parts[0] == "class" || parts[0] == "kernel" || parts[0] == "bus"
	if len(parts) > 1 && chosen && !m.sys.Exists(wholeSys) {
		return path.Join(parts[0], parts[1])
	}
	return parts[0]
}

// read reads a file by its name on its machine, without the first slash.
func (m *Machine) read(elem ...string) reading { return read(m.place(path.Join(elem...))) }

func (l *look) read(elem ...string) reading { return l.m.read(elem...) }

// there asks whether there is a file, of whatever kind.
func (l *look) there(elem ...string) (placement.Answer, []string) {
	name, where, anchor := l.m.place(path.Join(elem...))
	_, err := files.Lstat(name)
	if _, loop := files.Stat(name); errors.Is(loop, unix.ELOOP) {
		err = loop
	}
	switch err = absent(err, anchor); {
	case err == nil:
		return placement.Yes, []string{where}
	case errors.Is(err, fs.ErrNotExist):
		return placement.No, []string{where}
	}
	return placement.AnswerUnknown, []string{where}
}

// list lists a directory; nil with an error that says why.
func (l *look) list(elem ...string) ([]string, reading) {
	name, where, anchor := l.m.place(path.Join(elem...))
	entries, err := files.ReadDir(name)
	r := reading{where: where, err: absent(err, anchor)}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, r
}

// option is what the kernel was built with.
func (l *look) option(name string) (value string, where []string) {
	if l.m.config == nil {
		return "", nil
	}
	value = l.m.config[name]
	if value == "" {
		value = "n" // a file of the kernel's own has every option that could have been set
	}
	where = []string{l.m.named(l.m.Kernel.Source)}
	return value, where
}

// named gives the files of a copy the names that they have on their machine.
func (m *Machine) named(text string) string {
	if m.root == "/" || m.root == noFiles {
		return text
	}
	text = Unmarked(text)
	return strings.ReplaceAll(text, filepath.Clean(m.root)+"/", "/")
}

// unread reports what could not be read.
func (l *look) unread(scope string, r reading) *Finding {
	f := l.unknown(scope, r.at(), "%s", r.why())
	if errors.Is(r.err, fs.ErrPermission) {
		f.asRoot(l.m)
	}
	return f
}

// asRoot is the remedy for what only root sees, of this machine or of a copy.
func (m *Machine) asRoot(change string) Remedy {
	if m.root != "/" {
		return Remedy{Change: "take the copy again, " + change}
	}
	return m.again(change, os.Geteuid() == 0)
}

// again is for this machine. Who is root already lacks something else.
func (m *Machine) again(change string, root bool) Remedy {
	if root {
		return Remedy{Change: m.lacking()}
	}
	r := Remedy{Change: "look again " + change, Command: "sudo p2pcheck"}
	if m.process != 0 {
		r.Command += " --pid " + strconv.Itoa(m.process)
	}
	return r
}

// lacking is what root does without here.
func (m *Machine) lacking() string {
	var lost []string
	if caps, r := effective(m.read("proc/self/status")); r.err == nil {
		for _, w := range wanted {
			if caps>>w.bit&1 == 0 {
				lost = append(lost, w.name)
			}
		}
	}
	user := m.link("proc/self/ns/user")
	switch {
	case user.err == nil && user.text != firstUser:
		return "look again as root of the host: this root is of another user namespace"
	case len(lost) > 0:
		return "look again with all of root's capabilities: this root is without " + strings.Join(lost, ", ")
	}
	return "look again on the host, outside of any container or lockdown: being root is not what is missing"
}

// asRoot says that root would see more.
func (f *Finding) asRoot(m *Machine) *Finding {
	fix := m.asRoot("as root")
	f.Remedy = &fix
	return f
}

// link reads where a symbolic link leads, as it is written. One to itself is the
// mark of a snapshot.
func (l *look) link(elem ...string) reading { return l.m.link(elem...) }

func (m *Machine) link(elem ...string) reading {
	name, where, anchor := m.place(path.Join(elem...))
	text, err := files.Readlink(name)
	if err == nil && text == path.Base(where) {
		err = errUnreadable
	}
	return reading{where: where, text: text, err: absent(err, anchor)}
}

// errNoID is of a file that should have a number, and has none.
var errNoID = errors.New("it has no number")

// errNoCount is of a counter that is no number.
var errNoCount = errors.New("it is no number")

// errNoTable is of a GID table without a place that can be read.
var errNoTable = errors.New("no place of the table can be read")
