// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// The chain of one pair, as a person has read it.
func TestWhy(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		status int
	}{
		"direct":  {[]string{"why", "03:00.0", "mlx5_0"}, cli.ExitOK},
		"staged":  {[]string{"why", "05:00.0", "mlx5_0"}, cli.ExitFailed},
		"refused": {[]string{"why", "03:00.0", "mlx4_0"}, cli.ExitFailed},
	} {
		r := run(machineTree(server, "0x1d"), t, append(c.args, "--root", "ROOT")...)
		if r.status != c.status || r.err != "" {
			t.Errorf("%s: %+v", name, r)
		}
		golden(t, "why-"+name+".txt", r.out)
	}
	// If ACS cannot be read, the text names the link that decides, and how to read it.
	r := run(machineTree(strings.ReplaceAll(server, "type=6 ", "type=6 config=64 "), "0x00"), t, "why", "03:00.0", "mlx5_0", "--root", "ROOT")
	if r.status != cli.ExitUnavailable || !strings.Contains(r.out, "<- decides") || !strings.Contains(r.out, "as root") {
		t.Errorf("%+v", r)
	}
}

func TestWhyInJSON(t *testing.T) {
	r := run(testenv.Machines["small-hgx"](), t, "why", "nvidia", "mlx5_0", "--json", "--root", "ROOT")
	var d struct {
		Command string
		Status  int `json:"exit_status"`
		Result  whyOutput
	}
	if err := json.Unmarshal([]byte(r.out), &d); err != nil || d.Command != "why" || d.Status != r.status || len(d.Result.Pairs) != 2 {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, p := range d.Result.Pairs {
		if len(p.Links) != int(chain.Links) {
			t.Errorf("%d links", len(p.Links))
		}
		for i, l := range p.Links {
			if l.Link != chain.Link(i).String() {
				t.Errorf("link %d is %q", i, l.Link)
			}
		}
	}
}

func TestWhyIsRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"why"}, "GPU is missing: write p2pcheck why GPU NIC\n"},
		{[]string{"why", "03:00.0"}, "NIC is missing: write p2pcheck why GPU NIC\n"},
		{[]string{"why", "03:00.0", "mlx5_0", "x"}, `"x": nothing comes after NIC`},
		{[]string{"why", "99:00.0", "mlx5_0", "--root", "ROOT"}, `no GPU here is called "99:00.0"; there is `},
		{[]string{"why", "03:00.0", "mlx5_9", "--root", "ROOT"}, `no NIC here is called "mlx5_9"; there is `},
		{[]string{"why", "03:00.0", "mlx5_0", "--gpu", "05:00.0", "--root", "ROOT"}, "why has no --gpu"},
		{[]string{"why", "03:00.0", "mlx5_0", "--skip", "all", "--root", "ROOT"}, "why has no --skip"},
	} {
		if r := run(machineTree(server, "0x00"), t, c.args...); r.status == cli.ExitOK || r.out != "" || !strings.Contains(r.err, c.want) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
}

// Where the NIC has a DMA function, why says which way the data takes with it. Where a guest has the
// NIC, it says where to ask.
func TestWhyOfOtherWays(t *testing.T) {
	for _, c := range []struct {
		machine, gpu, nic string
		status            int
		out, err          string
	}{
		{"case-07-gb300-data-direct", "0008:06:00.0", "mlx5_0", cli.ExitOK, "DMA function 0008:03:00.0", ""},
		{"case-06-gb300-azure", "0008:01:00.0", "mlx5_0", cli.ExitOK, "", ""},
		{"case-13-vfio-host", "0000:13:00.0", "14:00.0", cli.ExitUnavailable, "", "the host gives NIC 0000:14:00.0 to guests: run p2pcheck in the guest"},
		{"case-13-vfio-host", "0000:13:00.0", "15:00.0", cli.ExitUnavailable, "", `no NIC here is called "15:00.0"; there is none`},
	} {
		r := run(corpusTree(t, c.machine), t, "why", c.gpu, c.nic, "--root", "ROOT")
		text := strings.Join(strings.Fields(r.out), " ")
		if r.status != c.status || !strings.Contains(text, c.out) || !strings.Contains(r.err, c.err) || c.out == "" && strings.Contains(text, "DMA function") {
			t.Errorf("%s: %+v", c.machine, r)
		}
	}
}

// The commands of all links name the pair's own NIC.
func TestWhyNamesTheNIC(t *testing.T) {
	r := run(machineTree(server, "0x00"), t, "why", gpu3, "mlx5_1", "--json", "--root", "ROOT")
	if !strings.Contains(r.out, "--nic mlx5_1") || strings.Contains(r.out, "--nic NIC") {
		t.Error(r.out)
	}
}
