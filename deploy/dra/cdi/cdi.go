// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/internal/wholefile"
)

// Kind is the kind of the devices.
const Kind = "p2p.gpurdma.github.io/pair"

// version is the oldest version of CDI that has all that is written here.
const version = "0.5.0"

// Dir is a directory with specifications, as "/var/run/cdi".
type Dir string

// file is the specification of a claim. The runtime keeps what it has read by the file's name.
func (d Dir) file(uid string) string {
	return filepath.Join(string(d), strings.ReplaceAll(Kind, "/", "-")+"-"+uid+".json")
}

// ID is the name under which the runtime finds the device of a claim.
func ID(uid, device string) string { return Kind + "=" + uid + "-" + device }

// NotThere is the error of device files that a container would need.
type NotThere struct{ Files []string }

func (e *NotThere) Error() string {
	return "the device files " + strings.Join(e.Files, ", ") + " are not there"
}

// Write writes the specification of a claim. Each device has the files of its GPUs and NICs; all devices
// have the same variables, which name all pairs of the claim, and the same hooks.
func (d Dir) Write(uid string, c checkpoint.Claim, n *node.Node, hooks ...*specs.Hook) error {
	s := specs.Spec{Version: version, Kind: Kind}
	env := variables(c, n)
	var missing []string
	for _, x := range c.Devices {
		files, absent := filesOf(x, n)
		missing = append(missing, absent...)
		edits := specs.ContainerEdits{Env: env, Hooks: hooks}
		for _, f := range files {
			edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: f, HostPath: f, Permissions: "rw"})
		}
		s.Devices = append(s.Devices, specs.Device{Name: uid + "-" + x.Name, ContainerEdits: edits})
	}
	if len(missing) > 0 {
		return &NotThere{missing}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	return wholefile.Replace(d.file(uid), text, 0o644)
}

// Remove removes the specification of a claim, if there is one.
func (d Dir) Remove(uid string) error {
	err := os.Remove(d.file(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Sweep removes the specifications of claims that are not among those that were prepared: an earlier process has
// left them.
func (d Dir) Sweep(claims map[string]checkpoint.Claim) error {
	all, err := filepath.Glob(d.file("*"))
	if err != nil {
		return err
	}
	var known []string
	for uid := range claims {
		known = append(known, d.file(uid))
	}
	for _, f := range all {
		if !slices.Contains(known, f) {
			err = errors.Join(err, os.Remove(f))
		}
	}
	return err
}

// stat looks for a device file. Tests replace it.
var stat = os.Stat

// filesOf returns the device files of a device that are there, and those that are needed and are not.
func filesOf(x checkpoint.Device, n *node.Node) (there, missing []string) {
	add := func(f node.Files) {
		for i, name := range slices.Concat(f.Needed, f.Optional) {
			if slices.Contains(there, name) {
				continue
			}
			if _, err := stat(n.Seen(name)); err == nil {
				there = append(there, name)
			} else if i < len(f.Needed) {
				missing = append(missing, name)
			}
		}
	}
	for _, p := range x.Pairs {
		if !x.OnlyNIC {
			add(n.GPU(p.GPU).Files)
		}
		add(n.NIC(p.NIC).Files)
	}
	return there, missing
}

// variables name the pairs for a container's programs, and the NICs for NCCL and UCX, which read theirs by
// themselves.
func variables(c checkpoint.Claim, n *node.Node) []string {
	var pairs, hcas, ports []string
	for _, x := range c.Devices {
		for _, p := range x.Pairs {
			g, nic := n.GPU(p.GPU), n.NIC(p.NIC)
			if g.ID != "" {
				pairs = append(pairs, fmt.Sprintf("%v=%s", g.PCI, nic.Name))
			}
			for _, port := range nic.Ports {
				at := fmt.Sprintf("%s:%d", nic.Name, port)
				if !slices.Contains(ports, at) {
					ports = append(ports, at)
				}
			}
			if !slices.Contains(hcas, nic.Name) {
				hcas = append(hcas, nic.Name)
			}
		}
	}
	return []string{
		"GPURDMA_PAIRS=" + strings.Join(pairs, ","),
		"NCCL_IB_HCA==" + strings.Join(hcas, ","), // the second "=": these names, and none that begins like one
		"UCX_NET_DEVICES=" + strings.Join(ports, ","),
	}
}
