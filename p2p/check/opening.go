// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Opening returns the remedy for ports that redirect a pair's traffic: a list of ports, of which the kernel
// uses one only. If it is enough for the pair that the ports stop redirecting, the list is the one that
// p2p.Combine gives to all such pairs. If that only helps, the list has the ports of all pairs that it
// helps as well, and says so. If it does not help, Opening returns the pair's own remedy.
func Opening(l *Look, p p2p.Pair) *chain.Remedy {
	opens := func(some func(p2p.Pair) bool) *chain.Remedy {
		r := p2p.OpenPorts(l.Machine, p2p.Redirecting(slices.DeleteFunc(slices.Clone(l.Pairs), func(o p2p.Pair) bool { return !some(o) })))
		return &r
	}
	if l.parameters.needed == nil {
		l.parameters.needed = opens(p2p.Pair.Opens)
	}
	var r chain.Remedy
	switch {
	case p.Opens():
		r = *l.parameters.needed
	case p2p.Gains(l.Machine, p):
		if l.parameters.all == nil {
			all := opens(func(o p2p.Pair) bool { return o.Opens() || p2p.Gains(l.Machine, o) })
			if slices.ContainsFunc(l.Pairs, p2p.Pair.Opens) && all.Command != l.parameters.needed.Command {
				all.Change += "; it contains the ports of the shorter list, which is for the pairs that do not work without it, and replaces that"
			}
			l.parameters.all = all
		}
		r = *l.parameters.all
	default:
		return p.Remedy.OfAll()
	}
	return &r
}

// OpeningFor returns the remedy of one link of a pair. If it stops ports from redirecting, it becomes the remedy of
// Opening: the kernel uses one list of ports only, so that lists of single pairs undo each other.
func OpeningFor(l *Look, p p2p.Pair, link *chain.Remedy) *chain.Remedy {
	if link == nil || !strings.HasPrefix(link.Command, p2p.OpenParameter) {
		return link
	}
	if r := Opening(l, p); r != nil {
		return r
	}
	return link
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
