// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// Access is a set of MR access flags.
type Access ibvfd.Access

// DefaultAccess lets peers read and write.
const DefaultAccess = Access(ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite)

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

// AccessNames lists the names of access flags.
func AccessNames() string {
	names := make([]string, len(accessByName))
	for i, a := range accessByName {
		names[i] = a.name
	}
	return strings.Join(names, ", ")
}

// Set implements pflag.Value.
func (f *Access) Set(s string) error {
	if n, err := strconv.ParseUint(s, 0, 32); err == nil {
		*f = Access(n)
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
		return fmt.Errorf("%q is no access flag; there are %s, or a number such as 0x7", name, AccessNames())
	}
	*f = Access(set)
	return nil
}

// String lists the flags; bits without a name are one number at the end.
func (f *Access) String() string {
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
func (f *Access) Type() string { return "FLAGS" }

// Choices are the values of a flag that has few, by name.
type Choices[T ~int] []struct {
	Name  string
	Value T
}

// Names lists the names of the values.
func (c Choices[T]) Names() []string {
	names := make([]string, len(c))
	for i, x := range c {
		names[i] = x.Name
	}
	return names
}

// Set parses the name of a value. The error names the flag as the argument what does.
func (c Choices[T]) Set(to *T, what, s string) error {
	for _, x := range c {
		if s == x.Name {
			*to = x.Value
			return nil
		}
	}
	names := c.Names()
	last := len(names) - 1
	return fmt.Errorf("%q is no %s: write %s or %s", s, what, strings.Join(names[:last], ", "), names[last])
}

// Name is the name of a value, or its number.
func (c Choices[T]) Name(v T) string {
	for _, x := range c {
		if v == x.Value {
			return x.Name
		}
	}
	return strconv.Itoa(int(v))
}

// Route is a registration route policy.
type Route ibvfd.RoutePolicy

var routes = Choices[ibvfd.RoutePolicy]{
	{"auto", ibvfd.RouteAuto},
	{"provider", ibvfd.RouteProviderOnly},
	{"ioctl", ibvfd.RouteIoctlOnly},
	{"peer-direct", ibvfd.RouteAutoPeerDirect},
}

// Set implements pflag.Value.
func (f *Route) Set(s string) error { return routes.Set((*ibvfd.RoutePolicy)(f), "route", s) }

// String implements pflag.Value.
func (f *Route) String() string { return routes.Name(ibvfd.RoutePolicy(*f)) }

// Type implements pflag.Value.
func (f *Route) Type() string { return "ROUTE" }

// CompleteGPU lets the shell complete --gpu, and --route where there is one. extra are the words that
// the command takes beside auto and the specs of this machine.
func CompleteGPU(cmd *cobra.Command, extra ...string) {
	Complete(cmd, "gpu", func() []string {
		words := append([]string{"auto"}, extra...)
		for _, d := range gpualloc.Discover(gpualloc.Env{}) {
			words = append(words, d.Spec)
		}
		return words
	})
	if cmd.Flags().Lookup("route") != nil {
		CompleteWords(cmd, "route", routes.Names()...)
	}
}

// Complete lets the shell complete a flag from a list that is made when it is asked for.
func Complete(cmd *cobra.Command, name string, list func() []string) {
	// It fails only for a flag that does not exist.
	if err := cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return list(), cobra.ShellCompDirectiveNoFileComp
	}); err != nil {
		panic(err)
	}
}

// CompleteWords lets the shell complete a flag that has few values.
func CompleteWords(cmd *cobra.Command, name string, words ...string) {
	Complete(cmd, name, func() []string { return words })
}
