// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
)

// KernelLog has the kernel's messages since its start; without the beginning if that was
// overwritten (Cut).
type KernelLog struct {
	Where string   // the file that was read, or AskedLog
	Lines []string // without level and time
	// Numbers are the numbers of the lines' records, which the kernel counts up from its
	// start. A log from syslog(2) has none.
	Numbers []uint64
	Cut     bool  // the beginning was overwritten
	Err     error // why the log is not known: then all other fields but Where may be empty
}

// Last returns the number of the latest record; false if the log has no numbers.
func (k *KernelLog) Last() (uint64, bool) {
	if k.Err != nil || len(k.Numbers) == 0 {
		return 0, false
	}
	return k.Numbers[len(k.Numbers)-1], true
}

// At returns the name of the file that was read.
func (k *KernelLog) At() []string { return []string{k.Where} }

// KernelLog reads the kernel's log from dev/kmsg, and on this machine by syslog(2) if that
// fails. It never returns nil. A log of another kernel release than the machine's is an error.
func (m *Machine) KernelLog() *KernelLog {
	name, where, anchor := m.Locate("dev/kmsg")
	k := ReadLog(name)
	k.Where, k.Err = where, Absent(k.Err, anchor)
	if m.Root == noFiles {
		k.Err = errNoLog
	}
	if named := k.release(); k.Err == nil && m.Kernel.running != "" && named != "" && named != m.Kernel.running {
		return &KernelLog{Where: where, Err: fmt.Errorf("the log is of another boot: of %s, and %s runs", named, m.Kernel.running)}
	}
	if k.Err != nil && m.Root == "/" {
		// If there is no /dev/kmsg, its error does not help: report that of syslog(2).
		if asked := askLog(); asked.Err == nil || errors.Is(k.Err, fs.ErrNotExist) {
			return asked
		}
	}
	return k
}

// release is the kernel's release in the first lines of a log; "" if they do not have it.
func (k *KernelLog) release() string {
	for _, line := range k.Lines[:min(len(k.Lines), 10)] {
		if rest, ok := strings.CutPrefix(line, "Linux version "); ok {
			named, _, _ := strings.Cut(rest, " ")
			return named
		}
	}
	return ""
}

// logLimit is larger than any log that the kernel keeps.
const logLimit = 16 << 20

// ReadLog returns the lines, Cut and Err of KernelLog.
func (m *Machine) ReadLog() (lines []string, cut bool, err error) {
	k := m.KernelLog()
	return k.Lines, k.Cut, k.Err
}

// ReadLog reads /dev/kmsg or a copy of it. Each record of the log becomes one line.
func ReadLog(name string) *KernelLog {
	k := &KernelLog{}
	records, cut, err := readRecords(name)
	k.Cut, k.Err = cut, err
	if err != nil {
		return k
	}
	for i, r := range records {
		if i == 0 && r.number != "0" {
			k.Cut = true
		}
		k.Lines = append(k.Lines, r.Text)
		if n, ok := r.Number(); ok {
			k.Numbers = append(k.Numbers, n)
		}
	}
	if len(k.Numbers) != len(k.Lines) {
		k.Numbers = nil
	}
	if len(k.Lines) == 0 {
		k.Err = ErrNoRecord
	}
	return k
}

func readRecords(name string) (all []LogRecord, cut bool, err error) {
	if files.Elsewhere(name) {
		return copiedRecords(name)
	}
	fd, err := OpenLog(name)
	if err != nil {
		return nil, false, err
	}
	defer unix.Close(fd)
	return Drain(fd, name)
}

// copiedRecords reads the log of another machine, or, in a container, that of the host.
func copiedRecords(name string) (all []LogRecord, cut bool, err error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	var text strings.Builder
	for {
		_, err := io.Copy(&text, io.LimitReader(f, int64(logLimit-text.Len())))
		switch {
		case errors.Is(err, unix.EPIPE): // overwritten meanwhile: go on with the oldest record
			cut = true
		case errors.Is(err, files.ErrTooLarge): // more than is read of a copy's
			return records(text.String()), true, nil
		case err != nil:
			return nil, cut, err
		default:
			return records(text.String()), cut, nil
		}
	}
}

// OpenLog opens /dev/kmsg, or a copy of it, so that reads do not block. The caller closes fd.
func OpenLog(name string) (fd int, err error) {
	fd, err = unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// LogRecord is one message of the log: Text has it without level and time.
type LogRecord struct{ number, Text string }

// Number returns the record's number, which the kernel counts up from its start; false if it has none.
func (r LogRecord) Number() (uint64, bool) {
	n, err := strconv.ParseUint(r.number, 10, 64)
	return n, err == nil
}

// Drain reads the records of the log that OpenLog has opened, without waiting for more. name
// is the file's name for errors. cut says that records were overwritten before they were read.
func Drain(fd int, name string) (out []LogRecord, cut bool, err error) {
	var all strings.Builder
	buf := make([]byte, 64<<10)
	for all.Len() < logLimit {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EPIPE): // overwritten meanwhile: go on with the oldest record
			cut = true
			continue
		case errors.Is(err, unix.EAGAIN):
			err = io.EOF
		case err == nil && n == 0:
			err = io.EOF
		case errors.Is(err, unix.EINTR):
			continue
		}
		if n > 0 {
			all.Write(buf[:n])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, cut, &os.PathError{Op: "read", Path: name, Err: err}
		}
	}
	return records(all.String()), cut, nil
}

// records are the messages in the text of /dev/kmsg.
func records(text string) (out []LogRecord) {
	for line := range strings.Lines(text) {
		head, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ";")
		fields := strings.Split(head, ",")
		if !ok || len(fields) < 3 || strings.HasPrefix(line, " ") {
			continue // properties of the record above
		}
		out = append(out, LogRecord{fields[1], text})
	}
	return out
}

// errNoLog is the error for a machine that was given as a sysfs and a procfs, without a root.
var errNoLog = fmt.Errorf("%w: a sysfs and a procfs have no log; --root DIR takes it from DIR/dev/kmsg", ErrNotCopied)

// ErrNoRecord is the error for an empty log, because a running kernel has always logged
// something.
var ErrNoRecord = errors.New("it has no record")
