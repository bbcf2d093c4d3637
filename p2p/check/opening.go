// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Opening returns the remedy for ports that redirect a pair's traffic: a list of p2p.Openings, or the pair's own
// remedy if opening ports does not help it.
func Opening(l *Look, p p2p.Pair) *chain.Remedy {
	if r := openings(l).Of(p); r != nil {
		return r
	}
	return p.Remedy.OfAll()
}

// OpeningOf returns the remedy for the ports that the kernel's log proposes to open: a list of p2p.Openings that
// has them, if there is one.
func OpeningOf(l *Look, ports []string) *chain.Remedy {
	r := openings(l).With(ports)
	return &r
}

func openings(l *Look) p2p.Openings {
	if l.openings == nil {
		o := p2p.NewOpenings(l.Machine, l.Pairs)
		l.openings = &o
	}
	return *l.openings
}

// Opened tries to open a device file by the Look's Live.Opens, which must not be nil. It adds a finding
// about the file, and returns it: a pass, or the result bad if the file does not exist (missing is then
// true) or if EPERM or EACCES refuses it, and otherwise unknown.
func Opened(l *Look, bad p2p.Result, scope, name string) (f *Finding, missing bool) {
	file, where, _ := l.Machine.Locate(name)
	at := []string{where}
	switch err := l.Subject.Live.Opens(file); {
	case err == nil:
		return l.Pass(scope, at, "it can be opened"), false
	case errors.Is(err, unix.EPERM):
		return l.Say(bad, scope, at, "EPERM: a device filter is in the way").Fix("give the container the device", "--device "+where, ""), false
	case errors.Is(err, unix.EACCES):
		f = l.Say(bad, scope, at, "EACCES: the file's mode and groups")
		if strings.HasPrefix(name, "dev/infiniband/") {
			f.Fix("give the file the mode that the kernel makes it with", "chmod 666 "+where, "every user of the machine may use the NIC")
		}
		return f, false
	case errors.Is(err, fs.ErrNotExist):
		return l.Say(bad, scope, at, "it is not there").Fix("load the driver; in a container, give it the device", "--device "+where, ""), true
	default:
		return l.Unknown(scope, at, "%v", err), false
	}
}
