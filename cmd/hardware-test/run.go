// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// hardware is one run of the test.
type hardware struct {
	bin, out string
	vendors  []vendor // to ask
	ask      func(context.Context, vendor) (answers, error)
	scrub    scrubber
	progress io.Writer
}

// program is the file of a program that is built beside this one.
func (h *hardware) program(name string) string { return filepath.Join(h.bin, name) }

func (h *hardware) step(format string, args ...any) {
	fmt.Fprintf(h.progress, "hardware-test: "+format+"\n", args...)
}

// run does all steps. A step that fails is named in the report, and the others go on. An error is
// one of writing.
func (h *hardware) run(ctx context.Context) (*report, error) {
	start := time.Now()
	r := &report{
		Schema: schema, Version: version, Date: start.UTC().Format(time.DateOnly),
		GPUs: []device{}, NICs: []device{}, Rows: []row{}, NotDone: []notDone{}, Tests: []testRun{},
	}
	r.describe()
	if err := os.MkdirAll(h.out, 0o755); err != nil {
		return nil, err
	}
	tree, err := os.MkdirTemp("", "hardware-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tree)

	h.step("snapshot")
	p, predicted := h.predicted(ctx, r, tree)
	said := h.asked(ctx, r, p)
	r.devices(p, said)
	live, why := h.proven(ctx, r, p)
	r.Rows = append(r.Rows, gpuRows(p, said, h.vendors)...)
	r.Rows = append(r.Rows, pairRows(p, live, why)...)
	limit := testsLimit
	if live == nil {
		limit += proveLimit // which was not used
	}
	h.tested(ctx, r, said, limit)
	if predicted {
		if err := h.writeMachine(ctx, tree, h.labelsOf(r, p, said, live, why)); err != nil {
			r.skip("the folder "+machineDir+" for p2p/testdata/machines", "%v", err)
		}
	}
	r.conclude()
	r.Seconds = time.Since(start).Seconds()
	clean, err := r.scrubbed(h.scrub)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	if err := clean.text(&text); err != nil {
		return nil, err
	}
	return &clean, errors.Join(
		os.WriteFile(filepath.Join(h.out, "report.txt"), []byte(text.String()), 0o644),
		writeJSON(filepath.Join(h.out, "report.json"), clean))
}

// predicted takes the snapshot and predicts from it.
func (h *hardware) predicted(ctx context.Context, r *report, tree string) (p prediction, ok bool) {
	var err error
	r.Snapshot, err = h.takeSnapshot(ctx)
	if err == nil {
		err = unpack(filepath.Join(h.out, snapshotFile), tree)
	}
	if err != nil {
		r.Snapshot.Error = err.Error()
		r.skip("a snapshot, and predictions from it", "%v", err)
		p, err = predict("/") // at least from this machine's own files
		if err != nil {
			r.skip("a part of the predictions", "%v", err)
		}
		return p, false
	}
	if p, err = predict(tree); err != nil {
		r.skip("a part of the predictions", "%v", err)
	}
	return p, true
}

// asked asks each library in turn.
func (h *hardware) asked(ctx context.Context, r *report, p prediction) map[string]answers {
	said := map[string]answers{}
	for _, v := range h.vendors {
		h.step("asking %s", v.library)
		a, err := h.ask(ctx, v)
		if err != nil {
			a.Error = err.Error()
		}
		said[v.name] = a
		if a.Error != "" {
			r.skip(v.name+": of each GPU, "+v.asks(), "%s", a.Error)
		}
	}
	for _, g := range p.gpus {
		if !asksAbout(h.vendors, g.Exporter.Driver) {
			r.skip("a library's answer about "+g.Name, "none of the libraries that are asked lists GPUs of driver %q", g.Exporter.Driver)
		}
	}
	return said
}

// asksAbout reports a driver whose GPUs one of the libraries lists.
func asksAbout(all []vendor, driver string) bool {
	return slices.ContainsFunc(all, func(v vendor) bool { return slices.Contains(v.drivers, driver) })
}

// proven tries the pairs. It returns why a pair was not tried, where that is one reason.
func (h *hardware) proven(ctx context.Context, r *report, p prediction) (*result.Run, string) {
	if why := p.lacks(); why != "" {
		r.skip(whatProofDoes, "%s", why)
		return nil, why
	}
	h.step("proving %d pairs", len(p.pairs))
	live, err := h.prove(ctx)
	if err != nil {
		r.skip(whatProofDoes+", of all pairs", "%v", err)
		if live == nil {
			return nil, err.Error()
		}
		return live, err.Error()
	}
	if live.Live == nil {
		return live, ""
	}
	if why := live.Live.Untried; why != "" {
		r.skip(whatProofDoes, "%s", why)
	}
	if why := live.Live.Untraced; why != "" {
		r.skip("a trace of where the bytes are", "%s", why)
	}
	if why := live.Live.Unmoved; why != "" {
		r.skip("RDMA WRITE and READ", "%s", why)
	}
	return live, live.Live.Untried
}

// tested runs the tests of the runtimes whose library exported memory of a GPU.
func (h *hardware) tested(ctx context.Context, r *report, said map[string]answers, limit time.Duration) {
	var with []vendor
	for _, v := range h.vendors {
		exports := false
		for _, x := range said[v.name].GPUs {
			exports = exports || x.Answers[keyExport].Says == yes
		}
		if !exports {
			r.skip("the tests of gpualloc/"+v.name+" (TestVM…, TestHardware…)", "%s exported no memory, which they need", v.library)
			continue
		}
		with = append(with, v)
	}
	for _, v := range with {
		h.step("tests of gpualloc/%s", v.name)
		t, err := h.testRuntime(ctx, v, limit/time.Duration(len(with)))
		if err != nil {
			r.skip("the log of the tests of gpualloc/"+v.name, "%v", err)
		}
		if t.Late != "" {
			r.skip("the rest of the tests of gpualloc/"+v.name, "%s", t.Late)
		}
		r.Tests = append(r.Tests, t)
	}
}
