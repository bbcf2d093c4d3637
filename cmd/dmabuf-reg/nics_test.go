// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/engine"
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
		got, err := nicNames(c.list)
		var usage *cli.UsageError
		if !slices.Equal(got, c.want) || (c.says == "") != (err == nil) || err != nil && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q: %q, %v", c.list, got, err)
		}
	}
}

// Options that are of one NIC are refused with several, and taken with one.
func TestSeveralNICsAndOptions(t *testing.T) {
	for _, c := range []struct{ addr, gid, says string }{
		{"10.0.0.1:7471", "", ""},
		{"10.0.0.1:7471", "v2,ipv4,10.0.0.0/8,vlan=none", ""},
		{"rdma_cm://10.0.0.1:7471", "", "a connection of rdma_cm's goes over one NIC"},
		{"10.0.0.1:7471", "10.0.0.1", "--gid 10.0.0.1: an address is of one NIC"},
		{"10.0.0.1:7471", "fe80::1", "an address is of one NIC"},
		{"10.0.0.1:7471", "v2,dev=eth0", "--gid v2,dev=eth0: a network device is of one NIC"},
	} {
		f := stationFlags{nic: "mlx5_0,mlx5_1"}
		if c.gid != "" {
			if err := f.gid.Set(c.gid); err != nil {
				t.Fatal(err)
			}
		}
		err := f.checkSeveral(c.addr)
		var usage *cli.UsageError
		if (c.says == "") != (err == nil) || err != nil && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q, --gid %q: %v", c.addr, c.gid, err)
		}
		if f.nic = "mlx5_0"; f.checkSeveral(c.addr) != nil {
			t.Errorf("%q, --gid %q with one NIC: %v", c.addr, c.gid, f.checkSeveral(c.addr))
		}
	}
}

// A command that takes one NIC says so of a list, and names a NIC that is not there.
func TestPickOneOfList(t *testing.T) {
	list := []nic{{Info: ibdev.Info{Name: "mlx5_0"}}, {Info: ibdev.Info{Name: "mlx5_1"}}}
	var usage *cli.UsageError
	if _, err := pickNICs(list, "mlx5_0,mlx5_1", allocated{}); !errors.As(err, &usage) || !strings.Contains(err.Error(), "this command takes one NIC; serve, connect and bench take several") {
		t.Error(err)
	}
	if _, err := pickNICs(list, "mlx5_7", allocated{}); !errors.Is(err, unix.ENODEV) || errors.As(err, &usage) {
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

// What happens to a rail is said once: that it has no link, and that it has one again.
func TestRailChange(t *testing.T) {
	down := map[string]bool{}
	state := func(up, slow bool, err error) rails.State {
		return rails.State{Path: engine.ConnPath{NIC: "mlx5_1", Port: 1}, Up: up, Slow: slow, Err: err}
	}
	for i, c := range []struct {
		s    rails.State
		says string
	}{
		{state(true, false, nil), ""}, // it was made
		{state(true, true, nil), ""},
		{state(false, false, errors.New("a cable is cut")), "the rail of mlx5_1 has no link: a cable is cut"},
		{state(true, false, nil), "the rail of mlx5_1 has a link again: port 1 of mlx5_1"},
		{state(true, false, nil), ""},
		{state(false, false, nil), "the rail of mlx5_1 has no link: its port is down"},
	} {
		if got := railChange(c.s, down); got != c.says && (c.says == "" || !strings.HasPrefix(got, c.says)) {
			t.Errorf("%d: %q, want %q", i, got, c.says)
		}
	}
}

// Of one NIC there is the line that there was, of several a table.
func TestWriteRails(t *testing.T) {
	first := over{text: "port 1 of mlx5_0, 10.0.0.1 to 10.0.0.2"}
	one := railDoc{NIC: "mlx5_0", Port: 1, GID: "10.0.0.1", Peer: "10.0.0.2", Up: true, Rate: 12e9, Bytes: 3 << 20}
	var b strings.Builder
	if err := writeRails(&b, []railDoc{one}, first); err != nil || b.String() != "over:    port 1 of mlx5_0, 10.0.0.1 to 10.0.0.2\n" {
		t.Errorf("%v, %q", err, b.String())
	}
	b.Reset()
	two := railDoc{NIC: "mlx5_1", Port: 2, GID: "10.1.0.1", Peer: "10.1.0.2", Lost: 3, Failed: 4, Error: "a cable is cut"}
	if err := writeRails(&b, []railDoc{one, two}, first); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for l := range strings.Lines(b.String()) {
		rows = append(rows, strings.Fields(l))
	}
	want := []string{"1", "mlx5_1", "2", "10.1.0.1", "10.1.0.2", "4", "3", "down:", "a", "cable", "is", "cut"}
	got := slices.DeleteFunc(slices.Clone(rows[len(rows)-1]), func(s string) bool { return s == "0" || s == "MB/s" || s == "-" })
	if !slices.Equal(got, want) || !strings.Contains(b.String(), "12.00 GB/s") || !strings.Contains(b.String(), "3.0 MiB") {
		t.Errorf("%q in\n%s", got, b.String())
	}
}
