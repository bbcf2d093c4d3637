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

// Opening returns the remedy for ports that redirect a pair's traffic. If it is enough for the pair that
// the ports stop redirecting, the remedy is the parameter that p2p.Combine gives to all such pairs. If
// that only helps, the parameter also has the pair's own ports, because the kernel uses one list only. If
// it does not help, Opening returns the pair's own remedy.
func Opening(l *Look, p p2p.Pair) *chain.Remedy {
	var some func(p2p.Pair) bool
	at := &l.parameters.all
	switch {
	case p.Opens():
		some, at = p2p.Pair.Opens, &l.parameters.needed
	case p2p.Gains(l.Machine, p):
		some = func(o p2p.Pair) bool { return o.Opens() || p2p.Gains(l.Machine, o) }
	default:
		return p.Remedy.OfAll()
	}
	if *at == nil {
		r := p2p.OpenPorts(l.Machine, p2p.Redirecting(slices.DeleteFunc(slices.Clone(l.Pairs), func(o p2p.Pair) bool { return !some(o) })))
		*at = &r
	}
	r := **at
	return &r
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
