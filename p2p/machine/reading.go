// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/placement"
)

// Reading is the content of a file, or the error of reading it.
type Reading struct {
	Where string // its name on its machine: "/sys/…"
	Text  string // without white space at the end
	All   string // with it
	Err   error
}

// ErrNotCopied is the error for a file that the copy of a machine does not have, although
// the machine may have it.
var ErrNotCopied = errors.New("that part of the machine is not here")

// ErrUnreadable is the error for a symbolic link to itself. A snapshot marks with such a link
// a file that could not be read when the snapshot was taken.
var ErrUnreadable = errors.New("it could not be read when this was taken, or the file does not have it")

// Unmarked replaces, in a text, the kernel's error for a symbolic link to itself by the text
// of ErrUnreadable, which explains the link.
func Unmarked(text string) string {
	return strings.ReplaceAll(text, unix.ELOOP.Error(), ErrUnreadable.Error())
}

// At returns Where as a list of one name, for check.Finding.Where.
func (r Reading) At() []string { return []string{r.Where} }

// Gone reports whether the machine does not have the file: the error says so, and the anchor
// directory exists.
func (r Reading) Gone() bool { return errors.Is(r.Err, fs.ErrNotExist) }

// Why returns the error's text without the path, which Where has. Err must not be nil.
func (r Reading) Why() string {
	if r.Gone() && r.Where != "" {
		return "there is no " + path.Base(r.Where)
	}
	var p *fs.PathError
	if errors.As(r.Err, &p) {
		return p.Err.Error()
	}
	return r.Err.Error()
}

// Number returns the text as a number; false if the text is no number, or negative.
func (r Reading) Number() (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(r.Text), 0, 64)
	return n, r.Err == nil && err == nil
}

// Line returns the value after "KEY:" or "KEY" in the first line that begins so; false if
// there is none.
func (r Reading) Line(key string) (string, bool) {
	for line := range strings.Lines(r.Text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), ":")), true
		}
	}
	return "", false
}

// ReadLimit is the number of bytes that Read reads of a file. No file that a check reads is
// larger.
const ReadLimit = 4 << 20

func read(name, where, anchor string) Reading {
	r := Reading{Where: where}
	f, err := files.Open(name)
	if err == nil {
		defer f.Close()
		var data []byte
		data, err = io.ReadAll(io.LimitReader(f, ReadLimit))
		r.All = string(data)
		r.Text = strings.TrimRight(r.All, " \t\n\x00")
	}
	r.Err = Absent(err, anchor)
	return r
}

// Absent returns ErrNotCopied in place of an error that means "not there" if the anchor
// directory is missing, too, and ErrUnreadable in place of ELOOP; otherwise it returns err.
func Absent(err error, anchor string) error {
	if errors.Is(err, unix.ELOOP) {
		return ErrUnreadable
	}
	none := strings.HasPrefix(anchor, noFiles+"/") // noFiles is not a directory: the kernel returns ENOTDIR
	if !errors.Is(err, fs.ErrNotExist) && !(none && errors.Is(err, unix.ENOTDIR)) {
		return err
	}
	if st, err := files.Stat(anchor); err != nil || !st.IsDir() {
		return ErrNotCopied
	}
	return err
}

// Locate returns the path by which this program reads a file of sysfs ("sys/…"), procfs
// ("proc/…") or another one, the file's name on its machine, and its anchor directory: if the
// anchor is missing, the absence of the file proves nothing. The name may contain text from a file of the machine: it
// cannot lead out of the machine's directory.
func (m *Machine) Locate(name string) (file, where, anchor string) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	where = "/" + name
	top, rest, _ := strings.Cut(name, "/")
	switch top {
	case "sys":
		return m.Sys.Path(rest), where, m.Sys.Path(m.sysAnchor(rest))
	case "proc":
		return m.Proc.Path(rest), where, m.Proc.Path(WholeProc)
	}
	return filepath.Join(m.Root, name), where, filepath.Join(m.Root, top)
}

// wholeSys and WholeProc are directories that every kernel has in sysfs and in procfs, and that
// no check reads. A sysfs or a procfs without its directory is therefore a partial copy.
const (
	wholeSys  = "class/mem"
	WholeProc = "sys/vm"
)

// sysAnchor is the anchor directory for a file of sysfs. A partial copy has only
// some of the directories of class, kernel and bus. If such a directory is missing, it was
// not copied.
func (m *Machine) sysAnchor(rest string) string {
	parts := strings.Split(rest, "/")
	// If a device is removed meanwhile, all of its files vanish.
	if len(parts) > 4 && strings.HasPrefix(rest, "bus/pci/devices/") {
		return path.Join(parts[:4]...)
	}
	chosen := parts[0] == "class" || parts[0] == "kernel" || parts[0] == "bus"
	if len(parts) > 1 && chosen && !m.WholeSys() {
		return path.Join(parts[0], parts[1])
	}
	return parts[0]
}

// Read reads a file by its name on its machine, without the first slash: m.Read("proc", "cmdline").
// It reads ReadLimit bytes at most, and reads the file anew at each call.
func (m *Machine) Read(elem ...string) Reading { return read(m.Locate(path.Join(elem...))) }

// WholeSys reports whether sysfs is the kernel's own, or a complete copy: it has the directory
// class/mem. A copy without it may have only some files.
func (m *Machine) WholeSys() bool { return m.Sys.Exists(wholeSys) }

// Named replaces, in a text, the paths of a copy by the paths on the machine that was
// copied.
func (m *Machine) Named(text string) string {
	if m.Root == "/" || m.Root == noFiles {
		return text
	}
	text = Unmarked(text)
	return strings.ReplaceAll(text, filepath.Clean(m.Root)+"/", "/")
}

// Link reads the target of a symbolic link, as it is written, into Text. The Err is
// ErrUnreadable for a link to itself.
func (m *Machine) Link(elem ...string) Reading {
	name, where, anchor := m.Locate(path.Join(elem...))
	text, err := files.Readlink(name)
	if err == nil && text == path.Base(where) {
		err = ErrUnreadable
	}
	return Reading{Where: where, Text: text, Err: Absent(err, anchor)}
}

// ErrNoID is the error for a file that should have a number, and has another text.
var ErrNoID = errors.New("it has no number")

// errNoCount is the error for a counter that is not a number.
var errNoCount = errors.New("it is no number")

// ErrNoTable is the error for a GID table of which no entry can be read.
var ErrNoTable = errors.New("no place of the table can be read")

// FirstError returns the first error that is not nil.
func FirstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrNoSize is the error for a file without a size. ErrNoECAM is the error for a function
// whose extended capabilities the kernel cannot read.
var (
	ErrNoSize = errors.New("it has no size")
	ErrNoECAM = errors.New("the kernel reaches no extended configuration space of it")
)

// There says whether a file of any kind exists, and its name on its machine.
func (m *Machine) There(elem ...string) (there placement.Answer, where string) {
	name, where, anchor := m.Locate(path.Join(elem...))
	_, err := files.Lstat(name)
	if _, loop := files.Stat(name); errors.Is(loop, unix.ELOOP) {
		err = loop
	}
	switch err = Absent(err, anchor); {
	case err == nil:
		return placement.Yes, where
	case errors.Is(err, fs.ErrNotExist):
		return placement.No, where
	}
	return placement.AnswerUnknown, where
}
