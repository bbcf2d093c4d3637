// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// several reports whether --nic names several NICs, and a connection has a rail for each.
func (f *stationFlags) several() bool { return strings.Contains(f.nic, ",") }

// nicNames returns the words of --nic.
func nicNames(list string) ([]string, error) {
	names := strings.Split(list, ",")
	if len(names) == 1 {
		return names, nil
	}
	refuse := func(format string, args ...any) ([]string, error) {
		return nil, &cli.UsageError{Err: fmt.Errorf("--nic %s: "+format, append([]any{list}, args...)...)}
	}
	for i, name := range names {
		name = strings.TrimSpace(name)
		names[i] = name
		switch {
		case name == "":
			return refuse("an element is empty: write names, and one comma between two of them")
		case name == "auto", name == "all":
			return refuse("%s does not go with names: name each NIC", name)
		case slices.Contains(names[:i], name):
			return refuse("%s is named twice: each NIC has one rail", name)
		}
	}
	if len(names) > rails.Most {
		return refuse("%d NICs, where a connection has %d at most", len(names), rails.Most)
	}
	return names, nil
}

// checkSeveral refuses options that cannot be meant for several NICs.
func (f *stationFlags) checkSeveral(addr string) error {
	refuse := func(text string) error { return &cli.UsageError{Err: errors.New(text)} }
	names, err := nicNames(f.nic)
	switch {
	case err != nil || len(names) == 1:
		return err
	case strings.HasPrefix(addr, overCM):
		return refuse(fmt.Sprintf("%s: a connection of rdma_cm's goes over one NIC, and --nic names %d: write HOST:PORT, or one NIC", addr, len(names)))
	case f.gid.wish.NetDev != "":
		return refuse("--gid " + f.gid.text + ": a network device is of one NIC, and --nic names several: leave dev= out, or choose by a network, v1, v2, ipv4, ipv6 or vlan=N")
	case f.gid.wish.Subnet.IsValid() && f.gid.wish.Subnet.IsSingleIP():
		return refuse("--gid " + f.gid.text + ": an address is of one NIC, and --nic names several: write a network that all of them are in, as 10.0.0.0/8")
	}
	return nil
}

// pickSeveral resolves the NICs of --nic.
func pickSeveral(names []string, m allocated) (list []choice, err error) {
	nics, err := candidates("")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		one, err := pickNICs(nics, name, m)
		if err != nil {
			return nil, err
		}
		list = append(list, one[0])
	}
	return list, nil
}

// nicsGreeting is what a side with several NICs says of itself when it connects. One with a single
// NIC says nothing.
const nicsGreeting = "nics="

func greeting(nics int) []byte {
	if nics == 1 {
		return nil
	}
	return fmt.Append(nil, nicsGreeting, nics)
}

// admit rejects a caller with one NIC where this side has several, and the reverse: they do not send
// messages in the same way.
func (s *station) admit(_ context.Context, caller engine.PeerInfo) error {
	theirs := 1
	if text, ok := strings.CutPrefix(string(caller.Hello), nicsGreeting); ok {
		var err error
		if theirs, err = strconv.Atoi(text); err != nil || theirs < 2 {
			return engine.Reject(fmt.Sprintf("the client's greeting is malformed: %.40q", caller.Hello))
		}
	}
	if ours := len(s.nics); (ours > 1) != (theirs > 1) {
		return engine.Reject(fmt.Sprintf("serve has --nic %s, and the client %d: give both sides one NIC, or both several", s.NIC, theirs))
	}
	return nil
}

// completeNICs lets the shell complete --nic, with further names after a comma.
func completeNICs(cmd *cobra.Command) {
	if err := cmd.RegisterFlagCompletionFunc("nic", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return nicWords(typed, deviceNames()), cobra.ShellCompDirectiveNoFileComp
	}); err != nil {
		panic(err) // there is no such flag
	}
}

// nicWords are the values of --nic that what was typed may become.
func nicWords(typed string, names []string) []string {
	at := strings.LastIndex(typed, ",") + 1
	if at == 0 {
		return append([]string{"auto"}, names...)
	}
	var list []string
	before := strings.Split(typed[:at-1], ",")
	for _, name := range names {
		if !slices.Contains(before, name) {
			list = append(list, typed[:at]+name)
		}
	}
	return list
}

// deviceNames are the RDMA devices of this machine.
func deviceNames() (list []string) {
	infos, _ := ibdev.ListWithoutGIDs("")
	for _, i := range infos {
		list = append(list, i.Name)
	}
	return list
}
