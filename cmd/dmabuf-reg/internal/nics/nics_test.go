// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// The words of --nic, and what is refused.
func TestNICNames(t *testing.T) {
	many := make([]string, rails.Most+1)
	for i := range many {
		many[i] = fmt.Sprint("mlx5_", i)
	}
	for _, c := range []struct {
		list string
		want []string
		says string
	}{
		{"auto", []string{"auto"}, ""},
		{"mlx5_0", []string{"mlx5_0"}, ""},
		{"mlx5_0,mlx5_1", []string{"mlx5_0", "mlx5_1"}, ""},
		{"mlx5_0, mlx5_1", []string{"mlx5_0", "mlx5_1"}, ""},
		{strings.Join(many[1:], ","), many[1:], ""},
		{"mlx5_0,", nil, "--nic mlx5_0,: an element is empty"},
		{"mlx5_0,,mlx5_1", nil, "an element is empty"},
		{",", nil, "an element is empty"},
		{"mlx5_0,mlx5_1,mlx5_0", nil, "mlx5_0 is named twice"},
		{"mlx5_0,auto", nil, "auto does not go with names"},
		{strings.Join(many, ","), nil, "65 NICs, where a connection has 64 at most"},
	} {
		got, err := Names(c.list)
		var usage *cli.UsageError
		if !slices.Equal(got, c.want) || (c.says == "") != (err == nil) || err != nil && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q: %q, %v", c.list, got, err)
		}
	}
}

// A command that takes one NIC says so of a list, and names a NIC that is not there.
func TestPickOneOfList(t *testing.T) {
	list := []Device{{Info: ibdev.Info{Name: "mlx5_0"}}, {Info: ibdev.Info{Name: "mlx5_1"}}}
	var usage *cli.UsageError
	if _, err := PickAmong(list, "mlx5_0,mlx5_1", ""); !errors.As(err, &usage) || !strings.Contains(err.Error(), "this command takes one NIC; serve, connect and bench take several") {
		t.Error(err)
	}
	if _, err := PickAmong(list, "mlx5_7", ""); !errors.Is(err, unix.ENODEV) || errors.As(err, &usage) {
		t.Error(err)
	}
}

// After a comma the shell offers the NICs that were not named.
func TestNICWords(t *testing.T) {
	names := []string{"mlx5_0", "mlx5_1", "mlx5_2"}
	for typed, want := range map[string][]string{
		"":                {"auto", "mlx5_0", "mlx5_1", "mlx5_2"},
		"ml":              {"auto", "mlx5_0", "mlx5_1", "mlx5_2"}, // the shell picks
		"mlx5_1,":         {"mlx5_1,mlx5_0", "mlx5_1,mlx5_2"},
		"mlx5_1,mlx5_0":   {"mlx5_1,mlx5_0", "mlx5_1,mlx5_2"},
		"mlx5_1,mlx5_2,m": {"mlx5_1,mlx5_2,mlx5_0"},
	} {
		if got := nicWords(typed, names); !slices.Equal(got, want) {
			t.Errorf("%q: %q", typed, got)
		}
	}
}
