// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Random sequences of registrations, re-registrations, deregistrations, WRITEs, READs and bindings of
// windows, while a GPU's buffers are evicted and revoked. A model says what each call answers, and in
// which buffer each WRITE arrives.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.3 7.2
func TestVMInPlaceRandom(t *testing.T) {
	needsInPlace(t)
	r := testenv.Seeded(t)
	gpus := testenv.SoftGPUs(t, "personality=amdgpu,xe")
	for i, kind := range importers {
		t.Run(kind, func(t *testing.T) {
			testenv.SetImporter(t, nic, kind)
			m := newModel(t, r, kind, gpus)
			for range testenv.Soak(150, 100_000)/len(importers) + min(i, 1) {
				m.sequence()
				if t.Failed() {
					return
				}
			}
			t.Logf("%d sequences of %d calls, %d refused; %d WRITEs arrived, %d failed", m.sequences, m.calls, m.refused, m.arrived, m.failed)
			if m.refused == 0 || m.arrived == 0 || m.moves == 0 {
				t.Error("something has never happened")
			}
		})
	}
}

const (
	modelSize = 1 << 16 // xe rounds the size of a buffer up to this
	modelMRs  = 3
)

// model is what a device has.
type model struct {
	t        *testing.T
	r        *rand.Rand
	importer string
	gpus     []testenv.SoftGPU
	pds      []*ibvfd.PD
	pairs    []*pair // one for each PD
	host     *hostmem.Buf
	hosts    []*ibvfd.MR // of host, one for each PD
	bufs     []*modelBuffer
	mrs      []*modelMR
	serial   uint64

	sequences, calls, refused, arrived, failed, moves int
}

// modelBuffer is a buffer, and whether its exporter has revoked it.
type modelBuffer struct {
	*gpualloc.Buffer
	gpu     *testenv.SoftGPU
	revoked bool
}

// modelMR is an MR, and what it is on.
type modelMR struct {
	mr           *ibvfd.MR
	buf          *modelBuffer
	off, n, iova uint64
	access       ibvfd.Access
	pd           int
	lost         bool // its buffer was revoked while it was on it
	writable     bool // it was imported to be written
}

func newModel(t *testing.T, r *rand.Rand, kind string, gpus []testenv.SoftGPU) *model {
	m := &model{t: t, r: r, importer: kind, gpus: gpus}
	pd := openPD(t)
	pd2, err := pd.Context().AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd2) })
	m.pds = []*ibvfd.PD{pd, pd2}
	m.host, _ = hostMR(t, pd, 4096)
	for _, pd := range m.pds {
		m.pairs = append(m.pairs, connectOne(t, pd, ibvfd.QPAttr{}))
		mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: m.host.Bytes(), Length: 4096, Access: allRemote, Owner: m.host})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, mr) })
		m.hosts = append(m.hosts, mr)
	}
	for i, spec := range []string{exporter, exporter, "drm:" + gpus[0].PCI + "/vram", "drm:" + gpus[1].PCI + "/vram"} {
		b := &modelBuffer{Buffer: alloc(t, spec, modelSize, gpualloc.Options{})}
		if i >= 2 {
			b.gpu = &gpus[i-2]
		}
		m.bufs = append(m.bufs, b)
	}
	return m
}

// sequence carries out some random calls, and ends all MRs.
func (m *model) sequence() {
	m.sequences++
	for range 4 + m.r.IntN(12) {
		m.calls++
		switch k := m.r.IntN(20); {
		case k < 3 && len(m.mrs) < modelMRs:
			m.register()
		case len(m.mrs) == 0:
			m.register()
		case k < 10:
			m.rereg(m.any())
		case k < 16:
			m.write(m.any())
		case k == 16:
			m.end(m.any())
		case k == 17:
			m.takeAway("evict")
		case k == 18:
			m.takeAway("revoke")
		default:
			m.bind(m.any())
		}
	}
	for len(m.mrs) > 0 {
		m.end(m.mrs[0])
	}
	for _, b := range m.bufs {
		if b.revoked {
			b.gpu.Set(m.t, "unrevoke", strconv.FormatUint(segment(m.t, b.Buffer).Inode(), 10))
			b.revoked = false
		}
		if m.sequences%50 == 0 {
			if n := attachments(m.t, b.Buffer); n != 0 {
				m.t.Errorf("sequence %d: %d attachments are left", m.sequences, n)
			}
		}
	}
}

func (m *model) any() *modelMR { return m.mrs[m.r.IntN(len(m.mrs))] }

// memory returns a range of a buffer, now and then one that is refused, and whether it is good.
func (m *model) memory() (b *modelBuffer, attr ibvfd.MRAttr, good bool) {
	page := uint64(os.Getpagesize())
	b = m.bufs[m.r.IntN(len(m.bufs))]
	off := 8 * m.r.Uint64N(modelSize/8)
	n := 8 * (1 + m.r.Uint64N((modelSize-off)/8))
	iova := 1<<40 + page*m.r.Uint64N(1<<20) + off%page
	good = !b.revoked
	switch m.r.IntN(20) {
	case 0:
		n, good = modelSize-off+1, false
	case 1:
		iova, good = iova^8, false
	case 2:
		n, good = 0, false
	case 3:
		iova, good = -page+off%page, good && off%page+n < page
	}
	attr = on(m.t, b.Buffer, off, n, iova)
	attr.Access, attr.SkipChecks = m.access(), true
	return b, attr, good
}

func (m *model) access() ibvfd.Access {
	list := []ibvfd.Access{0, ibvfd.AccessRemoteRead, localWrite, localWrite | ibvfd.AccessRemoteRead, remoteWrite, remoteWrite, remoteWrite, allRemote, allRemote, allRemote, allRemote, allRemote}
	return list[m.r.IntN(len(list))]
}

func writable(a ibvfd.Access) bool { return a&^ibvfd.AccessRemoteRead != 0 }

func (m *model) register() {
	b, attr, good := m.memory()
	pd := m.r.IntN(len(m.pds))
	mr, err := m.pds[pd].RegMR(attr)
	if (err == nil) != good {
		m.t.Errorf("sequence %d: registering %+v, revoked %v: %v, good %v", m.sequences, attr, b.revoked, err, good)
	}
	if err != nil {
		m.refused++
		return
	}
	m.mrs = append(m.mrs, &modelMR{mr: mr, buf: b, off: attr.Offset, n: attr.Length, iova: attr.IOVA, access: attr.Access, pd: pd, writable: writable(attr.Access)})
}

func (m *model) rereg(x *modelMR) {
	change := ibvfd.ReregFlags(1 + m.r.IntN(7))
	next, good := *x, true
	attr := ibvfd.ReregAttr{Change: change, InPlace: ibvfd.InPlaceOnly}
	if change&ibvfd.ReregMemory != 0 {
		var b *modelBuffer
		b, attr.MRAttr, good = m.memory()
		next.buf, next.off, next.n, next.iova, next.lost = b, attr.Offset, attr.Length, attr.IOVA, false
	}
	if attr.Access = x.access; change&ibvfd.ReregAccess != 0 {
		attr.Access = m.access()
		next.access = attr.Access
	}
	if change&ibvfd.ReregMemory != 0 {
		next.writable = writable(attr.Access)
	} else if writable(attr.Access) && !x.writable && next.access != x.access {
		good = false
	}
	if change&ibvfd.ReregPD != 0 {
		next.pd = m.r.IntN(len(m.pds))
		attr.PD = m.pds[next.pd]
	}
	before := x.mr.State()
	err := x.mr.Rereg(attr)
	if (err == nil) != good {
		m.t.Errorf("sequence %d: %+v becomes %+v: %v, good %v", m.sequences, before, attr, err, good)
	}
	now := x.mr.State()
	if err != nil {
		m.refused++
		if now != before {
			m.t.Errorf("sequence %d: %+v after a refusal, was %+v", m.sequences, now, before)
		}
		return
	}
	if now.LKey != before.LKey || now.RKey != before.RKey {
		m.t.Errorf("sequence %d: the keys of %+v were those of %+v", m.sequences, now, before)
	}
	m.moves++
	*x = next
}

// write writes 8 bytes with both PDs, and looks where they arrive.
func (m *model) write(x *modelMR) {
	pd := x.pd
	if m.r.IntN(6) == 0 {
		pd = m.r.IntN(len(m.pds))
	}
	at := 8 * m.r.Uint64N(x.n/8)
	m.serial++
	binary.NativeEndian.PutUint64(m.host.Bytes(), m.serial)
	hmr := m.hosts[pd]
	w := m.pairs[pd].do(m.t, ibvfd.SendWR{
		ID: m.serial, Op: ibvfd.OpWrite, SGE: []ibvfd.SGE{{Addr: hmr.IOVA(), Length: 8, LKey: hmr.LKey()}},
		RemoteAddr: x.iova + at, RKey: x.mr.RKey(),
	})
	want := ibvfd.WCSuccess
	if pd != x.pd || x.access&ibvfd.AccessRemoteWrite == 0 || x.lost || m.importer == "dynamic" && x.buf.revoked {
		want = ibvfd.WCRemAccessErr
	}
	if w.Status != want {
		m.t.Errorf("sequence %d: a WRITE by PD %d to %+v: %v, want %v", m.sequences, pd, x, w.Status, want)
	}
	if w.Err() != nil {
		m.failed++
		if err := m.pairs[pd].reconnect(); err != nil {
			m.t.Fatal(err)
		}
		return
	}
	m.arrived++
	for _, b := range m.bufs {
		if b.revoked {
			continue
		}
		got := make([]byte, 8)
		if _, err := b.ReadAt(got, int64(x.off+at)); err != nil {
			m.t.Fatal(err)
		}
		if here := binary.NativeEndian.Uint64(got) == m.serial; here != (b == x.buf) {
			m.t.Errorf("sequence %d: what was written is there: %v", m.sequences, here)
		}
	}
}

func (m *model) end(x *modelMR) {
	if err := x.mr.Close(); err != nil {
		m.t.Errorf("sequence %d: %v", m.sequences, err)
	}
	for i, y := range m.mrs {
		if x == y {
			m.mrs = append(m.mrs[:i], m.mrs[i+1:]...)
			return
		}
	}
}

// takeAway evicts or revokes a GPU's buffer.
func (m *model) takeAway(how string) {
	b := m.bufs[2+m.r.IntN(2)]
	if b.revoked {
		return
	}
	on := 0
	for _, x := range m.mrs {
		if x.buf == b && !x.lost {
			on++
		}
	}
	err := b.gpu.TrySet(how, strconv.FormatUint(segment(m.t, b.Buffer).Inode(), 10))
	good := on == 0 || m.importer == "dynamic" || m.importer == "revocable" && how == "revoke"
	if (err == nil) != good {
		m.t.Errorf("sequence %d: %s with %d MRs of a %s importer on it: %v", m.sequences, how, on, m.importer, err)
	}
	if err != nil || how != "revoke" {
		return
	}
	b.revoked = true
	for _, x := range m.mrs {
		if x.buf == b && m.importer == "revocable" {
			x.lost = true
		}
	}
}

// bind tries to bind a window: uverbs gives no region on a dma-buf the right for that.
func (m *model) bind(x *modelMR) {
	mw, err := m.pds[x.pd].AllocMW(ibvfd.MWType1)
	if err != nil {
		m.t.Fatal(err)
	}
	defer closed(m.t, mw)
	if _, err := m.pairs[x.pd].a.BindMW(mw, ibvfd.MWBind{ID: 1, MR: x.mr, Length: 8, Access: ibvfd.AccessRemoteRead}); err == nil {
		m.t.Errorf("sequence %d: a window was bound to %+v", m.sequences, x)
	}
}

// randomVar makes the test binary carry out random sequences until it is killed.
const randomVar = "GPURDMA_TEST_RANDOM"

// Processes are killed in the middle of random sequences, and leave nothing.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.3 7.2
func TestVMInPlaceKilled(t *testing.T) {
	needsInPlace(t)
	r := testenv.Seeded(t)
	gpus := testenv.SoftGPUs(t, "personality=amdgpu,xe")
	if os.Getenv(randomVar) != "" {
		m := newModel(t, r, os.Getenv(randomVar), gpus)
		fmt.Println("ready")
		for !t.Failed() {
			m.sequence()
		}
		return
	}
	before := len(netlinkMRs(t))
	for i := range testenv.Soak(6, 300) {
		kind := importers[i%len(importers)]
		testenv.SetImporter(t, nic, kind)
		cmd := exec.Command(os.Args[0], "-test.run=^TestVMInPlaceKilled$", "-test.v")
		cmd.Env = append(os.Environ(), randomVar+"="+kind)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !sawLine(out, "ready") {
			t.Fatal("the process has not begun")
		}
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		eventually(t, func() bool {
			for _, g := range gpus {
				if len(g.Buffers(t)) > 0 {
					return false
				}
			}
			return len(netlinkMRs(t)) == before
		})
	}
}

// sawLine reads until a line, and reports whether it came.
func sawLine(r io.Reader, want string) bool {
	for s := bufio.NewScanner(r); s.Scan(); {
		if s.Text() == want {
			return true
		}
	}
	return false
}
