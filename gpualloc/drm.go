// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/drm"
	"github.com/gpurdma/gpurdma/failure"
)

// drmBackend exports buffers of DRM drivers through PRIME: those of the GPU
// drivers that it knows in VRAM or system memory, by their own ioctls, and dumb
// buffers of all others.
type drmBackend struct{}

// noDRM is what to do on a machine without DRM devices.
const noDRM = "load a GPU's driver, or vgem (modprobe vgem), which needs no hardware"

func (drmBackend) discover(env Env, spec string) []candidate {
	if spec != "" && !inFamily(spec, "drm") {
		return nil
	}
	nodes, err := drm.Nodes(env.Sys, env.Dev)
	if err != nil || len(nodes) == 0 {
		c := candidate{Description: Description{
			Spec: "drm", Exporter: "drm", Device: filepath.Join(env.dev(), "dri"),
			Why: "no DRM device", Remedy: noDRM,
		}}
		if err != nil {
			c.Why = err.Error()
		}
		return []candidate{c}
	}
	var out []candidate
	for _, group := range byDevice(nodes) {
		if spec == "" || named(group, spec) {
			out = append(out, describeDRM(group)...)
		}
	}
	return out
}

// named reports whether a spec means a device, whatever memory of it. It spares
// the others being opened and asked.
func named(group []drm.Node, spec string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(spec, "drm:"), "/")
	return slices.Contains(deviceNames(group), name)
}

// deviceNames are what a device is called by: its nodes, driver, the driver
// that it stands for, PCI address.
func deviceNames(nodes []drm.Node) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	names = append(names, nodes[0].Driver, nodes[0].Class)
	if a, ok := nodes[0].PCI(); ok {
		names = append(names, a.String())
	}
	return names
}

// byDevice groups nodes of the same device, in the order of first appearance.
func byDevice(nodes []drm.Node) [][]drm.Node {
	var out [][]drm.Node
	index := map[string]int{}
	for _, n := range nodes {
		i, ok := index[n.SysPath]
		if !ok {
			i = len(out)
			index[n.SysPath] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], n)
	}
	return out
}

// nodeOf is the first node of a kind.
func nodeOf(nodes []drm.Node, kind drm.NodeType) (drm.Node, bool) {
	i := slices.IndexFunc(nodes, func(n drm.Node) bool { return n.Type == kind })
	if i < 0 {
		return drm.Node{}, false
	}
	return nodes[i], true
}

// describeDRM asks a device's driver what it can do. The render node's name is
// the one that users of GPUs know a device by.
func describeDRM(nodes []drm.Node) []candidate {
	node, ok := nodeOf(nodes, drm.Render)
	if !ok {
		node = nodes[0]
	}
	c := candidate{Description: Description{
		Spec: "drm:" + node.Name, Exporter: "drm", Driver: node.Driver, Device: node.Path,
	}}
	if a, ok := node.PCI(); ok {
		c.PCI = &a
	}
	if node.Class != node.Driver {
		c.Class = node.Class
	}
	if speak, ok := gpuDrivers[node.Class]; ok {
		return describeGPU(c, nodes, speak)
	}
	return []candidate{describeDumb(c, nodes)}
}

// alias adds the other names of the device.
func (c *candidate) alias(nodes []drm.Node) {
	for _, name := range deviceNames(nodes) {
		if s := "drm:" + name; name != "" && s != c.Spec && !slices.Contains(c.Aliases, s) {
			c.Aliases = append(c.Aliases, s)
		}
	}
}

// refused records why a device cannot be used.
func (c *candidate) refused(err error) {
	c.Why, c.err = err.Error(), err
	var e *failure.Error
	if errors.As(err, &e) {
		c.Remedy = e.Remedy
		c.Why = strings.TrimSuffix(c.Why, "; "+e.Remedy)
	}
}
