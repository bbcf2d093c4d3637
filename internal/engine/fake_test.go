// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// fabric is an RDMA network in memory, for cases that a NIC cannot be made to produce, and for
// machines without a NIC. It carries out work requests when their sender's completion queue is
// polled.
type fabric struct {
	mu   sync.Mutex
	key  uint32
	mrs  map[uint32]*fakeMR // by lkey, and by rkey
	qps  map[uint32]*fakeQP
	open int // MRs and links

	// WRITEs are acknowledged while their bytes are on the way, as PCIe allows it: a READ on
	// the same queue pair pushes them into the memory.
	late bool
}

type fakeMR struct {
	mem    []byte
	base   uint64
	access ibvfd.Access
	remote bool // the key is an rkey
}

func newFabric() *fabric {
	return &fabric{mrs: map[uint32]*fakeMR{}, qps: map[uint32]*fakeQP{}, key: 100}
}

// fakeDevice registers host memory, and sources whose bytes it can see.
type fakeDevice struct {
	*fabric
	maxSGE, inline int
	maxSGERead     int // 0: the device does not say
	noAtomics      bool
}

func (f *fakeDevice) Name() string  { return "fake0" }
func (f *fakeDevice) Atomics() bool { return !f.noAtomics }
func (f *fakeDevice) Close() error  { return nil }
func (f *fakeDevice) Ended()        {}

func (f *fakeDevice) NewDomain() (rc.Device, error) { return f, nil }

func (f *fakeDevice) Host(mem *hostmem.Buf, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	return f.register(mem.Bytes()[off:off+n], access), nil
}

func (f *fakeDevice) Source(src rc.Source, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	m, ok := src.(*memSource)
	if !ok || !m.direct {
		return nil, &ibvfd.RegError{Device: f.Name(), Errno: unix.EOPNOTSUPP, Cause: fault.CauseNotSupported}
	}
	return f.register(m.mem[off:off+n], access), nil
}

func (f *fabric) register(mem []byte, access ibvfd.Access) *rc.Registration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key += 2
	lkey, rkey, base := f.key, f.key+1, uint64(f.key)<<32
	f.mrs[lkey] = &fakeMR{mem, base, access, false}
	f.mrs[rkey] = &fakeMR{mem, base, access, true}
	f.open++
	return &rc.Registration{
		Local: lower.Memory{{Addr: base, Length: int64(len(mem)), Key: lkey}}, Remote: lower.Memory{{Addr: base, Length: int64(len(mem)), Key: rkey}}, Route: "fake",
		Close: func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.mrs[lkey] != nil {
				f.open--
			}
			delete(f.mrs, lkey)
			delete(f.mrs, rkey)
			return nil
		},
	}
}

// at returns the memory that a key covers, nil if the key does not cover it.
func (f *fabric) at(key uint32, addr uint64, n int, remote bool, need ibvfd.Access) []byte {
	m := f.mrs[key]
	if m == nil || m.remote != remote || addr < m.base || addr-m.base+uint64(n) > uint64(len(m.mem)) || m.access&need != need {
		return nil
	}
	return m.mem[addr-m.base:][:n]
}

type fakeQP struct {
	link   *fakeLink
	peer   uint32
	mtu    int
	sq     []ibvfd.SendWR
	rq     []ibvfd.RecvWR
	failed bool
	onWay  []func() // of acknowledged WRITEs
}

type fakeLink struct {
	f   *fabric
	qps [rc.Queues]*fakeQP
	num [rc.Queues]uint32
	a   rc.Attr
	*fakeQueue

	maxSGERead int
	refuse     int   // the work request that is refused, counted from 1
	slow       int   // polls until the NIC answers
	end        error // the error that ended it
}

// fakeQueue is a completion queue, and the links on it.
type fakeQueue struct {
	fab      *fabric
	links    []*fakeLink
	depth    int
	wcs      []ibvfd.WC
	event    func()
	broken   func(error)
	armed    bool
	noEvents error
	polls    int
}

func (f *fakeDevice) QueueDepth(depth int) int { return depth }

func (f *fakeDevice) Queue(depth int, event func(), broke func(error)) (rc.CompletionQueue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return &fakeQueue{fab: f.fabric, depth: depth, event: event, broken: broke}, nil
}

func (q *fakeQueue) Poll(wc []ibvfd.WC) (int, error) {
	q.fab.mu.Lock()
	defer q.fab.mu.Unlock()
	q.polls++
	for _, l := range q.links {
		l.slow--
		for _, qp := range l.qps {
			if (l.end == nil && l.slow <= 0) || qp.failed {
				qp.run()
			}
		}
	}
	n := copy(wc, q.wcs)
	q.wcs = q.wcs[n:]
	return n, nil
}

func (q *fakeQueue) Arm() error {
	q.fab.mu.Lock()
	defer q.fab.mu.Unlock()
	q.armed = q.noEvents == nil
	return q.noEvents
}

func (q *fakeQueue) Close() error {
	q.fab.mu.Lock()
	defer q.fab.mu.Unlock()
	if len(q.links) > 0 {
		return unix.EBUSY
	}
	q.fab.open--
	return nil
}

// complete adds a completion, and raises an event if the queue is armed.
func (q *fakeQueue) complete(wc ibvfd.WC) {
	if q.wcs = append(q.wcs, wc); len(q.wcs) > q.depth {
		panic("the completion queue overruns")
	}
	if q.armed {
		q.armed = false
		q.event()
	}
}

func (f *fakeDevice) Link(a rc.Attr) (rc.Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &fakeLink{f: f.fabric, a: a, fakeQueue: a.Queue.(*fakeQueue), maxSGERead: f.maxSGERead}
	l.links = append(l.links, l)
	l.a.SGE, l.a.Inline, l.a.MaxMsg = min(a.SGE, f.maxSGE), min(a.Inline, f.inline), 1<<20
	l.a.ReadSGE = rc.ReadSGE(l.a.SGE, f.maxSGERead)
	l.a.ReadsIn = a.Connect.Reads(ibdev.DeviceAttr{MaxReadAtomic: 16, MaxInitReadAtom: 128})
	l.a.ReadsOut = l.a.ReadsIn
	for i := range l.qps {
		f.key += 2
		l.qps[i], l.num[i] = &fakeQP{link: l}, f.key
		f.qps[f.key] = l.qps[i]
	}
	f.open++
	return l, nil
}

func (l *fakeLink) Local() (e [rc.Queues]ibvfd.Endpoint) {
	for i, n := range l.num {
		e[i] = ibvfd.Endpoint{QPN: n, GID: [16]byte{15: 1}, MTU: rc.MTU(4096, l.a.Connect.MTU)}
	}
	return e
}

func (l *fakeLink) Connect(remote [rc.Queues]ibvfd.Endpoint, reads uint8) error {
	local := l.Local()
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for i := range l.qps {
		l.qps[i].peer, l.qps[i].mtu = remote[i].QPN, min(local[i].MTU, remote[i].MTU)
	}
	l.a.ReadsOut = min(l.a.ReadsOut, reads)
	return nil
}

func (l *fakeLink) Attr() rc.Attr { return l.a }

func (l *fakeLink) Post(queue int, wrs []ibvfd.SendWR) (int, error) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for i, wr := range wrs {
		l.refuse--
		if len(l.qps[queue].sq) >= l.a.SendDepth || len(wr.SGE) > l.a.SGE || l.refuse == 0 ||
			wr.Op == ibvfd.OpRead && l.maxSGERead > 0 && len(wr.SGE) > l.maxSGERead {
			return i, unix.ENOMEM
		}
		wr.SGE = append([]ibvfd.SGE(nil), wr.SGE...)
		l.qps[queue].sq = append(l.qps[queue].sq, wr)
	}
	if l.armed { // there may be no poll
		l.qps[queue].run()
	}
	return len(wrs), nil
}

func (l *fakeLink) Recv(wrs []ibvfd.RecvWR) (int, error) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for _, wr := range wrs {
		wr.SGE = append([]ibvfd.SGE(nil), wr.SGE...)
		l.qps[rc.WriteQueue].rq = append(l.qps[rc.WriteQueue].rq, wr)
	}
	return len(wrs), nil
}

func (l *fakeLink) Down() error { return nil }

// broke reports that the link is dead: there are no more completions.
func (l *fakeLink) broke(why error) {
	l.f.mu.Lock()
	l.end = why
	l.f.mu.Unlock()
	l.a.Broke(why)
}

func (l *fakeLink) Fail() error {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for _, q := range l.qps {
		q.failed = true
		q.run()
	}
	return nil
}

func (l *fakeLink) Close() error {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for _, n := range l.num {
		delete(l.f.qps, n)
	}
	if i := slices.Index(l.links, l); i >= 0 {
		l.links = slices.Delete(l.links, i, i+1)
		l.f.open--
	}
	return nil
}

// vendorErr returns the fabric's own code of a status: different for each, and none of them a
// status, so that they cannot be confused.
func vendorErr(s ibvfd.WCStatus) uint32 { return 0x5000 + uint32(s) }

// completed returns a completion, with a vendor's code if it is an error.
func completed(id uint64, s ibvfd.WCStatus) ibvfd.WC {
	if s == ibvfd.WCSuccess {
		return ibvfd.WC{ID: id}
	}
	return ibvfd.WC{ID: id, Status: s, VendorErr: vendorErr(s)}
}

// run carries out posted work requests, and flushes them after a failure.
func (q *fakeQP) run() {
	for len(q.sq) > 0 {
		wr := q.sq[0]
		q.sq = q.sq[1:]
		status := ibvfd.WCWRFlushErr
		if !q.failed {
			status = q.do(&wr)
		}
		if status != ibvfd.WCSuccess || wr.Flags&ibvfd.SendSignaled != 0 {
			q.link.complete(completed(wr.ID, status))
		}
		q.failed = q.failed || status != ibvfd.WCSuccess
	}
	for q.failed && len(q.rq) > 0 {
		q.link.complete(completed(q.rq[0].ID, ibvfd.WCWRFlushErr))
		q.rq = q.rq[1:]
	}
}

func (q *fakeQP) do(wr *ibvfd.SendWR) ibvfd.WCStatus {
	f := q.link.f
	peer := f.qps[q.peer]
	if peer == nil || peer.failed {
		return ibvfd.WCRetryExcErr
	}
	need := ibvfd.Access(0)
	total := 0
	for _, g := range wr.SGE {
		total += int(g.Length)
	}
	remote := []byte{}
	switch wr.Op {
	case ibvfd.OpRead:
		need = ibvfd.AccessLocalWrite
		if total > 0 {
			remote = f.at(wr.RKey, wr.RemoteAddr, total, true, ibvfd.AccessRemoteRead)
		}
	case ibvfd.OpWrite, ibvfd.OpWriteImm:
		if total > 0 {
			remote = f.at(wr.RKey, wr.RemoteAddr, total, true, ibvfd.AccessRemoteWrite)
		}
	case ibvfd.OpFetchAdd, ibvfd.OpCompareSwap:
		need = ibvfd.AccessLocalWrite
		remote = f.at(wr.RKey, wr.RemoteAddr, 8, true, ibvfd.AccessRemoteAtomic)
	}
	if remote == nil {
		return ibvfd.WCRemAccessErr
	}
	var local [][]byte
	var data []byte
	for _, g := range wr.SGE {
		mem := f.at(g.LKey, g.Addr, int(g.Length), false, need)
		if mem == nil {
			return ibvfd.WCLocProtErr
		}
		local, data = append(local, mem), append(data, mem...)
	}
	switch wr.Op {
	case ibvfd.OpRead:
		for _, arrive := range q.onWay {
			arrive()
		}
		q.onWay = nil
		scatter(local, remote)
	case ibvfd.OpWrite:
		q.write(remote, data)
	case ibvfd.OpWriteImm:
		q.write(remote, data)
		return peer.take(ibvfd.WC{Opcode: ibvfd.WCOpRecvWriteImm, ByteLen: uint32(total), Flags: ibvfd.WCWithImm, Imm: wr.Imm}, nil)
	case ibvfd.OpSend:
		return peer.take(ibvfd.WC{Opcode: ibvfd.WCOpRecv, ByteLen: uint32(total)}, data)
	case ibvfd.OpSendImm:
		return peer.take(ibvfd.WC{Opcode: ibvfd.WCOpRecv, ByteLen: uint32(total), Flags: ibvfd.WCWithImm, Imm: wr.Imm}, data)
	case ibvfd.OpFetchAdd, ibvfd.OpCompareSwap:
		old := binary.NativeEndian.Uint64(remote)
		scatter(local, remote)
		if wr.Op == ibvfd.OpFetchAdd {
			binary.NativeEndian.PutUint64(remote, old+wr.CompareAdd)
		} else if old == wr.CompareAdd {
			binary.NativeEndian.PutUint64(remote, wr.Swap)
		}
	}
	return ibvfd.WCSuccess
}

func (q *fakeQP) write(remote, data []byte) {
	if !q.link.f.late {
		copy(remote, data)
		return
	}
	q.onWay = append(q.onWay, func() { copy(remote, data) })
}

func scatter(to [][]byte, from []byte) {
	for _, m := range to {
		from = from[copy(m, from):]
	}
}

// take completes a receive.
func (q *fakeQP) take(wc ibvfd.WC, data []byte) ibvfd.WCStatus {
	if len(q.rq) == 0 {
		return ibvfd.WCRNRRetryExcErr
	}
	wr := q.rq[0]
	q.rq = q.rq[1:]
	var local [][]byte
	room := 0
	for _, g := range wr.SGE {
		mem := q.link.f.at(g.LKey, g.Addr, int(g.Length), false, ibvfd.AccessLocalWrite)
		local, room = append(local, mem), room+len(mem)
	}
	wc.ID = wr.ID
	if len(data) > room {
		q.failed = true
		q.link.complete(completed(wr.ID, ibvfd.WCLocLenErr))
		q.run()
		return ibvfd.WCRemInvReqErr
	}
	scatter(local, data)
	q.link.complete(wc)
	return ibvfd.WCSuccess
}

// memSource is a source in Go memory, which is accessed like a GPU's: only by ReadAt and
// WriteAt, and by the fabric's DMA if it is direct.
type memSource struct {
	mem    []byte
	direct bool

	mu    sync.Mutex
	holds int
}

func (m *memSource) Size() int64                  { return int64(len(m.mem)) }
func (m *memSource) Segments() []gpualloc.Segment { return nil }
func (m *memSource) PCI() (pciaddr.Addr, bool)    { return pciaddr.Addr{Bus: 3}, true }

func (m *memSource) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(p, m.mem[off:]), nil
}

func (m *memSource) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(m.mem[off:], p), nil
}

func (m *memSource) Hold() (func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.holds--
	}), nil
}

// connTo returns the connection to a peer.
func (e *Endpoint) connTo(p Peer) *conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, err := e.lookup(p)
	if err != nil {
		panic(err)
	}
	return x.conn
}

// linkTo returns the link of the connection to a peer.
func (e *Endpoint) linkTo(p Peer) *fakeLink {
	c := e.connTo(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link.(*fakeLink)
}
