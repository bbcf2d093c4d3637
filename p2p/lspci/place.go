// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"fmt"
	"path"
	"strings"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// places finds where in the tree of the machine each function is.
type places struct {
	*Text
	tree  *Tree // nil without one
	above map[bus]pciaddr.Addr
	twice map[bus]bool // two bridges lead there
	roots map[bus]bool
	dirs  map[pciaddr.Addr]string
	pf    map[pciaddr.Addr]pciaddr.Addr // of virtual functions
}

// unplaced is the directory above a function whose place no line shows. It is not an
// address, so that package p2p finds no way to the function.
const unplaced = "a bridge or root bus that the text does not have"

func (t *Text) places(tree *Tree) (*places, error) {
	p := &places{
		Text: t, tree: tree, above: map[bus]pciaddr.Addr{}, twice: map[bus]bool{}, roots: map[bus]bool{},
		dirs: map[pciaddr.Addr]string{}, pf: map[pciaddr.Addr]pciaddr.Addr{},
	}
	for _, f := range t.functions {
		p.lead(f)
	}
	if err := p.compare(); err != nil {
		return nil, err
	}
	for _, f := range t.functions {
		p.virtual(f)
	}
	for _, f := range t.functions {
		if _, err := p.dir(f.addr, 0); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// lead notes the bus that a bridge leads to, and a root bus by what only a root
// bus has on it. The kernel numbers buses from the root on: a bridge that leads to
// a lower bus, or to its own, is not set up.
func (p *places) lead(f *function) {
	at := busOf(f.addr)
	if f.class == classHost || f.class == classIOMMU || f.addr.Bus == 0 || f.hostStandIn() {
		p.roots[at] = true
	}
	if e := f.caps.express; e != nil && e.known && (e.kind == kindRootPort || e.kind == kindIntegrated || e.kind == kindCollector) {
		p.roots[at] = true
	}
	if f.bridge == nil || f.bridge.secondary <= f.addr.Bus {
		return
	}
	to := bus{f.addr.Domain, f.bridge.secondary}
	if _, there := p.above[to]; there {
		p.twice[to] = true
	}
	p.above[to] = f.addr
}

// standIns are functions of Intel's root complexes that stand for a host bridge and
// are of another class: pci_p2pdma_whitelist of drivers/pci/p2pdma.c. Without root
// lspci does not print that they are parts of the root complex.
var standIns = map[string]bool{
	"09a2": true, // Ice Lake and later
	"0b25": true, // DSA of Sapphire Rapids
	"0cfe": true, // IAX of Sapphire Rapids
}

func (f *function) hostStandIn() bool { return f.vendor == "8086" && standIns[f.device] }

// compare takes the places that the other text lacks from the tree. If both texts have a place,
// they must agree.
func (p *places) compare() error {
	if p.tree == nil {
		return nil
	}
	for b, bridge := range p.tree.above {
		mine, there := p.above[b]
		switch {
		case !there || p.twice[b]:
			p.above[b] = bridge
			delete(p.twice, b)
		case mine != bridge && p.onBus(b):
			return p.disagree(b, mine, bridge.String())
		}
	}
	for b := range p.tree.roots {
		if mine, there := p.above[b]; there && p.onBus(b) {
			return p.disagree(b, mine, "no bridge")
		}
		p.roots[b] = true
	}
	return nil
}

// onBus reports a function of the text on a bus.
func (p *places) onBus(b bus) bool {
	for _, f := range p.functions {
		if busOf(f.addr) == b {
			return true
		}
	}
	return false
}

func (p *places) disagree(b bus, mine pciaddr.Addr, its string) error {
	return refuse(TreeCommand, "by the tree %s leads to bus %04x:%02x, and by the other text it is %v: the two are not of one machine", its, b.domain, b.number, mine)
}

// virtual finds the virtual functions of a physical one: they follow it at a fixed
// distance (PCI Express, single root I/O virtualization).
func (p *places) virtual(f *function) {
	s := f.caps.sriov
	if s == nil || !s.read() || !s.enabled || f.unknown || f.caps.broken {
		return
	}
	for _, v := range p.functions {
		if v.addr.Domain != f.addr.Domain || v.caps.sriov != nil || v.registered() {
			continue
		}
		// Without a stride there can be one.
		n, stride := routing(v.addr)-routing(f.addr)-int(s.offset), max(int(s.stride), 1)
		if n >= 0 && n%stride == 0 && n/stride < int(s.count) && (s.stride > 0 || n == 0) {
			p.pf[v.addr] = f.addr
		}
	}
}

// routing is a function's number in its domain.
func routing(a pciaddr.Addr) int { return int(a.Bus)<<8 | int(a.Device)<<3 | int(a.Function) }

// dir is the directory of a function, below the root of the machine.
func (p *places) dir(a pciaddr.Addr, depth int) (string, error) {
	d, ok := p.dirs[a]
	if ok {
		return d, nil
	}
	b := busOf(a)
	bridge, there := p.above[b]
	pf, isVirtual := p.pf[a]
	root := path.Join("sys/devices", rootName(b))
	switch {
	case p.twice[b]:
		// Package p2p takes what is below a directory of this name for a function.
		d = path.Join(root, unplaced, a.String(), a.String())
	case there:
		above, err := p.dir(bridge, depth+1)
		if err != nil {
			return "", err
		}
		d = path.Join(above, a.String())
	case p.roots[b]:
		d = path.Join(root, a.String())
	case isVirtual:
		its, err := p.dir(pf, depth+1)
		if err != nil {
			return "", err
		}
		d = path.Join(path.Dir(its), a.String())
	default:
		d = path.Join(root, unplaced, a.String(), a.String())
	}
	if depth > depthLimit || strings.Count(d, "/") > depthLimit+2 {
		return "", refuse(Command, "%v is below more than %d bridges", a, depthLimit)
	}
	p.dirs[a] = d
	return d, nil
}

func rootName(b bus) string { return fmt.Sprintf("pci%04x:%02x", b.domain, b.number) }

// placed reports a function whose place is known.
func (p *places) placed(a pciaddr.Addr) bool { return !strings.Contains(p.dirs[a], unplaced) }
