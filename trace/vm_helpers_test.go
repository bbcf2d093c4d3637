// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// exporter is a source of dma-bufs that the testbed has.
type exporter struct {
	spec   string
	since  string
	exp    string // exp_name
	driver string // the exporting module
}

var exporters = []exporter{
	{"drm:vgem", "6.1", "drm", "vgem"},
	{"drm:virtio_gpu", "6.1", "virtio_gpu", "virtio_gpu"},
	{"udmabuf", "6.12", "udmabuf", ""},
	{"heap:system", "6.12", "system", ""},
}

func eachExporter(t *testing.T, run func(t *testing.T, x exporter)) {
	for _, x := range exporters {
		t.Run(x.spec, func(t *testing.T) {
			testenv.VM(t)
			if !testenv.AtLeast(t, x.since) {
				t.Skipf("the testbed's kernels have %s from %s on", x.spec, x.since)
			}
			if testenv.Lacks(x.spec) {
				t.Skipf("Debian's kernels of this architecture have no %s", x.spec)
			}
			run(t, x)
		})
	}
}

// alloc makes a buffer of one segment.
func alloc(t testing.TB, spec string, size int64) *gpualloc.Buffer {
	t.Helper()
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := a.Alloc(context.Background(), size, gpualloc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// device is rxe0's context and a PD.
type device struct {
	*uverbs.File
	pd uint32
}

func openDevice(t testing.TB) device { return openUverbs(t, "/dev/infiniband/uverbs0") }

func openUverbs(t testing.TB, node string) device {
	t.Helper()
	f, err := uverbs.Open(uverbs.Kernel(), node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	pd, err := f.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	return device{f, pd}
}

const accessAll = 1 | 2 | 4 // local write, remote write, remote read

// register makes an MR over all of a buffer.
func (d device) register(t testing.TB, b *gpualloc.Buffer) uverbs.MR {
	t.Helper()
	mr, err := d.try(b, 0, uint64(b.Size()))
	if err != nil {
		t.Fatalf("REG_DMABUF_MR: %v", err)
	}
	return mr
}

func (d device) try(b *gpualloc.Buffer, offset, length uint64) (mr uverbs.MR, err error) {
	seg := b.Segments()[0]
	err = seg.Buf.Do(func(fd int) error {
		mr, err = d.RegDMABufMR(uverbs.DMABufMR{PD: d.pd, FD: int32(fd), Access: accessAll, Offset: offset, Length: length, IOVA: offset})
		return err
	})
	return mr, err
}

func inode(b *gpualloc.Buffer) uint64 { return b.Segments()[0].Buf.Inode() }

// open starts a tracer that ends with the test.
func open(t testing.TB, cfg Config) *Tracer {
	t.Helper()
	testenv.VM(t)
	tr, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

var theTracer *Tracer

// shared is a tracer of this process and its children, for all tests that need
// no configuration of their own: loading takes seconds under emulation. It
// ends with the process.
func shared(t testing.TB) *Tracer {
	t.Helper()
	testenv.VM(t)
	// No test reads the shared tracer while another one uses a tracer of its own, which may make
	// more events than the shared one has room for.
	if theTracer != nil && theTracer.Loss().Any() {
		endShared(t)
	}
	if theTracer == nil {
		c := mine()
		c.Children = true
		tr, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		theTracer = tr
	}
	all(t, theTracer)
	if live := theTracer.Records(); len(live) != 0 {
		t.Fatalf("an earlier test left %v", live)
	}
	return theTracer
}

// endShared ends it: as long as it watches modules, they cannot be removed.
func endShared(t testing.TB) {
	t.Helper()
	if theTracer == nil {
		return
	}
	if err := theTracer.Close(); err != nil {
		t.Error(err)
	}
	theTracer = nil
}

// setWalk changes how many entries of a scatter list are read.
func setWalk(t testing.TB, tr *Tracer, limit uint32) {
	t.Helper()
	var c abi.Config
	m := tr.loader.Map("config")
	if err := m.Lookup(uint32(0), c.Bytes()); err != nil {
		t.Fatal(err)
	}
	c.Walk = limit
	if err := tr.loader.SetConfig(c); err != nil {
		t.Fatal(err)
	}
}

// mine traces this process only.
func mine() Config { return Config{PIDs: []int{os.Getpid()}, NoInventory: true} }

// within is the time that the testbed may take for what takes milliseconds.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// await returns the first event that pick accepts.
func await(t testing.TB, tr *Tracer, what string, pick func(Event) bool) Event {
	t.Helper()
	var seen []string
	for e, err := range tr.Events(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if pick(e) {
			return e
		}
		seen = append(seen, string(e.Kind)+" "+e.Record.String())
	}
	t.Fatalf("no event: %s; seen:\n%s\n%v", what, strings.Join(seen, "\n"), tr.Loss())
	return Event{}
}

// all returns the events up to now.
func all(t testing.TB, tr *Tracer) []Event {
	t.Helper()
	if err := tr.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	return tr.Pending()
}

func onBuffer(ino uint64, kind EventKind) func(Event) bool {
	return func(e Event) bool {
		return e.Kind == kind && e.Record.Buffer != nil && e.Record.Buffer.Inode == ino
	}
}

func mustHave(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q lacks %q", text, w)
		}
	}
}
