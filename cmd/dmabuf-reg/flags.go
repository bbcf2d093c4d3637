// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// accessFlag is a set of MR access flags.
type accessFlag ibvfd.Access

const defaultAccess = accessFlag(ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite)

var accessByName = []struct {
	name string
	bit  ibvfd.Access
}{
	{"local-write", ibvfd.AccessLocalWrite},
	{"remote-write", ibvfd.AccessRemoteWrite},
	{"remote-read", ibvfd.AccessRemoteRead},
	{"remote-atomic", ibvfd.AccessRemoteAtomic},
	{"mw-bind", ibvfd.AccessMWBind},
	{"relaxed-ordering", ibvfd.AccessRelaxedOrdering},
}

func accessNames() string {
	names := make([]string, len(accessByName))
	for i, a := range accessByName {
		names[i] = a.name
	}
	return strings.Join(names, ", ")
}

// Set implements pflag.Value.
func (f *accessFlag) Set(s string) error {
	if n, err := strconv.ParseUint(s, 0, 32); err == nil {
		*f = accessFlag(n)
		return nil
	}
	var set ibvfd.Access
next:
	for _, name := range strings.Split(s, ",") {
		for _, a := range accessByName {
			if strings.TrimSpace(name) == a.name {
				set |= a.bit
				continue next
			}
		}
		return fmt.Errorf("%q is no access flag; there are %s, or a number such as 0x7", name, accessNames())
	}
	*f = accessFlag(set)
	return nil
}

// String lists the flags; bits without a name are one number at the end.
func (f *accessFlag) String() string {
	rest := ibvfd.Access(*f)
	var names []string
	for _, a := range accessByName {
		if rest&a.bit != 0 {
			names = append(names, a.name)
			rest &^= a.bit
		}
	}
	if rest != 0 || len(names) == 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(rest)))
	}
	return strings.Join(names, ",")
}

// Type implements pflag.Value.
func (f *accessFlag) Type() string { return "FLAGS" }

// choices are the values of a flag that has few, by name.
type choices[T ~int] []struct {
	name  string
	value T
}

func (c choices[T]) names() []string {
	names := make([]string, len(c))
	for i, x := range c {
		names[i] = x.name
	}
	return names
}

func (c choices[T]) set(to *T, what, s string) error {
	for _, x := range c {
		if s == x.name {
			*to = x.value
			return nil
		}
	}
	names := c.names()
	last := len(names) - 1
	return fmt.Errorf("%q is no %s: write %s or %s", s, what, strings.Join(names[:last], ", "), names[last])
}

func (c choices[T]) name(v T) string {
	for _, x := range c {
		if v == x.value {
			return x.name
		}
	}
	return strconv.Itoa(int(v))
}

// routeFlag is a registration route policy.
type routeFlag ibvfd.RoutePolicy

var routes = choices[ibvfd.RoutePolicy]{
	{"auto", ibvfd.RouteAuto},
	{"provider", ibvfd.RouteProviderOnly},
	{"ioctl", ibvfd.RouteIoctlOnly},
	{"peer-direct", ibvfd.RouteAutoPeerDirect},
}

// Set implements pflag.Value.
func (f *routeFlag) Set(s string) error { return routes.set((*ibvfd.RoutePolicy)(f), "route", s) }

func (f *routeFlag) String() string { return routes.name(ibvfd.RoutePolicy(*f)) }

// Type implements pflag.Value.
func (f *routeFlag) Type() string { return "ROUTE" }

// completeGPU lets the shell complete --gpu, and --route where there is one. extra are the words that
// the command takes beside auto and the specs of this machine.
func completeGPU(cmd *cobra.Command, extra ...string) {
	complete(cmd, "gpu", func() []string {
		words := append([]string{"auto"}, extra...)
		for _, d := range gpualloc.Discover(gpualloc.Env{}) {
			words = append(words, d.Spec)
		}
		return words
	})
	if cmd.Flags().Lookup("route") != nil {
		completeWords(cmd, "route", routes.names()...)
	}
}

// complete lets the shell complete a flag from a list that is made when it is asked for.
func complete(cmd *cobra.Command, name string, list func() []string) {
	// It fails only for a flag that does not exist.
	if err := cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return list(), cobra.ShellCompDirectiveNoFileComp
	}); err != nil {
		panic(err)
	}
}

// completeWords lets the shell complete a flag that has few values.
func completeWords(cmd *cobra.Command, name string, words ...string) {
	complete(cmd, name, func() []string { return words })
}
