// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/trace/internal/objects"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// exporterOp is an operation of an exporter's, to be attached to.
type exporterOp struct {
	hook   hook
	op     string // of struct dma_buf_ops
	module string
	cookie uint64
}

// newExporterOps picks the operations of exporters, among the modules that came, to which no
// program is attached yet. types returns the type information of a module.
func (l *Loader) newExporterOps(found map[string]symbols.Symbol, came Modules, types func(module string) (*btf.Spec, error)) (list []exporterOp) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		sym := found[name]
		if !maybeExporterOp([]byte(name)) || !sym.Code || l.have[name] || !came.Has(sym.Module) {
			continue
		}
		h := hook{function: name, how: "fexit", what: WhatExporterOps}
		spec, err := types(sym.Module)
		if err != nil {
			// Noted once a module: many functions may have such names.
			if untyped := "types of " + sym.Module; !l.have[untyped] {
				l.notes(untyped)
				l.note(h, sym.Module, fmt.Sprintf("whether this and other functions of %s are an exporter's is not known: %v", sym.Module, err))
			}
			continue
		}
		var fn *btf.Func
		if spec.TypeByName(name, &fn) != nil {
			continue
		}
		op := opOf(fn)
		if op == "" {
			continue
		}
		l.notes(name)
		if len(l.ops) > l.cfg.ExporterOps {
			l.note(h, sym.Module, fmt.Sprintf("%d exporters' operations are watched at most", l.cfg.ExporterOps))
			continue
		}
		h.program = fmt.Sprintf("exporter_%s_%d", op, len(l.ops))
		list = append(list, exporterOp{h, op, sym.Module, uint64(len(l.ops))})
		l.mu.Lock()
		l.ops = append(l.ops, name)
		l.mu.Unlock()
	}
	return list
}

// notes remembers that something is done and is not to be done again.
func (l *Loader) notes(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.have[name] = true
}

// loadExporters attaches to the attach, pin and map operations of exporters
// among the modules that came, where no program is attached yet.
func (l *Loader) loadExporters(types typesOf, found map[string]symbols.Symbol, came Modules) error {
	tmpl, err := objects.Spec("exporter")
	if err != nil {
		return err
	}
	cs := tmpl.Copy()
	clear(cs.Programs)
	targets := l.newExporterOps(found, came, func(module string) (*btf.Spec, error) {
		cache, kernel, err := types()
		switch {
		case err != nil:
			return nil, err
		case module == "":
			return kernel, nil
		case l.cfg.Tests.RDMAWithoutBTF && strings.HasPrefix(module, "ib_"):
			return nil, btf.ErrNotFound
		}
		return cache.Module(module)
	})
	for _, t := range targets {
		ps := tmpl.Programs["exporter_"+t.op].Copy()
		ps.Name, ps.AttachTo = "exporter_"+t.op, t.hook.function
		cs.Programs[t.hook.program] = ps
	}
	if len(targets) == 0 {
		return nil
	}
	cache, kernel, err := types()
	if err != nil {
		return err
	}
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: cache, MapReplacements: l.shared(cs), Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if err != nil {
		// Without these programs only the explanations are coarser.
		for _, t := range targets {
			l.note(t.hook, t.module, err.Error())
		}
		return nil
	}
	l.owns(coll)
	for _, t := range targets {
		k, err := attach(coll.Programs[t.hook.program], t.hook, t.cookie)
		if err != nil {
			l.note(t.hook, t.module, "attaching failed: "+err.Error())
			continue
		}
		l.attached(k, coll.Programs[t.hook.program], t.hook, t.module)
	}
	return nil
}
