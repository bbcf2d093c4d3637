// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"cmp"
	"os"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// script is a library whose functions give the test's answers. The objects it makes
// are counted, so that a test sees what an error path leaves behind.
type script struct {
	mu   sync.Mutex
	live map[string]int
	fail map[string]error // by function: "allocPD"

	provider  func(fd int) error // ibv_reg_dmabuf_mr
	reregs    int                // ibv_rereg_mr calls
	addr      uint64             // of the last ibv_reg_mr
	mover     string             // directory of the DMA function; "": there is none
	allocates bool               // has ibv_alloc_buf
	nextKey   uint32
	nextID    uintptr
	port      *ibdev.PortAttr // what queryPort answers, unless it is nil
	async     *pipe           // of asynchronous events
	acked     int             // asynchronous events
}

// identify makes the identity of an object.
func (s *script) identify() uintptr {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	return s.nextID
}

func newScript() *script {
	return &script{live: map[string]int{}, fail: map[string]error{}, provider: func(int) error { return unix.EOPNOTSUPP }}
}

// made counts an object, unless the function is to fail.
func (s *script) made(fn, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail[fn]; err != nil {
		return err
	}
	s.live[what]++
	return nil
}

func (s *script) gone(fn, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail[fn]; err != nil {
		return err
	}
	s.live[what]--
	return nil
}

func (s *script) failing(fn string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail[fn]
}

// failWith makes a function fail until it is called with nil.
func (s *script) failWith(fn string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[fn] = err
}

// nothingLeft reports what was made and not destroyed.
func (s *script) nothingLeft(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for what, n := range s.live {
		if n != 0 {
			t.Errorf("%d %s left behind", n, what)
		}
	}
}

func (s *script) Version() string { return "libibverbs of a script" }

func (s *script) Open(string) (libibverbs.Context, error) {
	if err := s.made("open", "context"); err != nil {
		return nil, err
	}
	return &scriptContext{s}, nil
}

type scriptContext struct{ *script }

func (c *scriptContext) CmdFD() int { return 1000 }

func (c *scriptContext) QueryDevice() (ibdev.DeviceAttr, error) {
	return ibdev.DeviceAttr{MaxCQE: 100, MaxQPWR: 64, MaxSGE: 4, MaxReadAtomic: 8, MaxInitReadAtom: 8, Ports: 1}, c.failing("queryDevice")
}

func (c *scriptContext) QueryPort(int) (ibdev.PortAttr, error) {
	if c.port != nil {
		return *c.port, c.failing("queryPort")
	}
	return ibdev.PortAttr{State: ibdev.PortActive, MTU: 1024, MaxMTU: 4096, LinkLayer: ibdev.LinkEthernet}, c.failing("queryPort")
}

func (c *scriptContext) GIDs() ([]ibdev.GID, []int, error) { return nil, nil, unix.ENOSYS }

func (c *scriptContext) AllocPD() (libibverbs.PD, error) {
	if err := c.made("allocPD", "PD"); err != nil {
		return nil, err
	}
	return &scriptPD{c.script}, nil
}

func (c *scriptContext) CreateCQ(_, _ int, events bool) (libibverbs.CQ, error) {
	if err := c.made("createCQ", "CQ"); err != nil {
		return nil, err
	}
	return newScriptCQ(c.script, events)
}

func (c *scriptContext) Close() error { return c.gone("close", "context") }

type scriptPD struct{ *script }

func (p *scriptPD) Handle() uint32 { return 5 }
func (p *scriptPD) Dealloc() error { return p.gone("deallocPD", "PD") }

func (p *scriptPD) newMR(fn string) (libibverbs.MR, error) {
	if err := p.made(fn, "MR"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextKey++
	return &scriptMR{p.script, p.nextKey, scriptCalls[fn]}, nil
}

// scriptCalls are what the script's functions stand for.
var scriptCalls = map[string]string{
	"regHost": "ibv_reg_mr", "regDMABuf": "ibv_reg_dmabuf_mr", "regBuf": "ibv_reg_buf_mr", "regDataDirect": "mlx5dv_reg_dmabuf_mr",
}

func (p *scriptPD) RegHost(addr, _, _ uint64, _ uint32) (libibverbs.MR, error) {
	p.mu.Lock()
	p.addr = addr
	p.mu.Unlock()
	return p.newMR("regHost")
}

func (p *scriptPD) RegDMABuf(_, _, _ uint64, fd int, _ uint32) (libibverbs.MR, error) {
	if err := p.provider(fd); err != nil {
		return nil, err
	}
	return p.newMR("regDMABuf")
}

// RegDataDirect takes what the script's DMA function takes.
func (p *scriptPD) RegDataDirect(_, _, _ uint64, _ int, _ uint32) (libibverbs.MR, error) {
	if p.mover == "" {
		return nil, unix.ENOSYS
	}
	return p.newMR("regDataDirect")
}

func (p *scriptPD) AllocBuf(size int) (libibverbs.Buf, error) {
	if !p.allocates {
		return nil, unix.ENOSYS
	}
	if err := p.made("allocBuf", "buffer"); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	mem[0], mem[size-1] = 0xff, 0xff // as malloc, it is not zeroed
	return &scriptBuf{p.script, mem}, nil
}

func (p *scriptPD) RegBuf(b libibverbs.Buf, addr, length uint64, _ uint32) (libibverbs.MR, error) {
	p.mu.Lock()
	p.addr = addr
	p.mu.Unlock()
	return p.newMR("regBuf")
}

type scriptBuf struct {
	*script
	mem []byte
}

func (b *scriptBuf) Bytes() []byte { return b.mem }

func (b *scriptBuf) Free() {
	_ = unix.Munmap(b.mem)
	_ = b.gone("freeBuf", "buffer")
}

func (c *scriptContext) DataDirect() (string, error) {
	if c.mover == "" {
		return "", unix.ENODEV
	}
	return c.mover, c.failing("dataDirect")
}

type scriptMR struct {
	*script
	key  uint32
	call string
}

func (m *scriptMR) Call() string { return m.call }

func (m *scriptMR) Keys() (lkey, rkey, handle uint32) { return m.key, m.key, m.key }
func (m *scriptMR) Dereg() error                      { return m.gone("dereg", "MR") }
func (m *scriptMR) Moved(libibverbs.PD)               {}

func (m *scriptMR) Rereg(libibverbs.PD, *uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reregs++
	return m.fail["rereg"]
}

func (p *scriptPD) CreateQP(init *libibverbs.QPInit) (libibverbs.QP, error) {
	if err := p.made("createQP", "QP"); err != nil {
		return nil, err
	}
	return &scriptQP{script: p.script, id: p.identify(), init: *init}, nil
}

type scriptQP struct {
	*script
	id       uintptr
	init     libibverbs.QPInit
	at       QPState
	faults   int                   // resets that a late fault ends in ERR
	modified []libibverbs.QPModify // in order
	bound    []libibverbs.Bind
}

func (q *scriptQP) Identity() uintptr   { return q.id }
func (q *scriptQP) Num() uint32         { return 17 }
func (q *scriptQP) Destroy() error      { return q.gone("destroyQP", "QP") }
func (q *scriptQP) State() (int, error) { return int(q.at), q.failing("queryQP") }

func (q *scriptQP) Modify(m *libibverbs.QPModify) error {
	if err := q.failing("modify " + QPState(m.State).String()); err != nil {
		return err
	}
	q.at = QPState(m.State)
	if m.State == int(StateReset) && q.faults > 0 {
		q.at = StateErr
		q.faults--
	}
	q.modified = append(q.modified, *m)
	return nil
}

func (q *scriptQP) BindMW(mw libibverbs.MW, _ libibverbs.MR, b *libibverbs.Bind) error {
	if err := q.failing("bindMW"); err != nil {
		return err
	}
	q.bound = append(q.bound, *b)
	mw.(*scriptMW).key++
	return nil
}

// kernel is the script's kernel: it answers RDMA_VERBS_IOCTL requests by
// object and method, in the layout of the ABI.
type kernel struct {
	mu       sync.Mutex
	driver   uint32
	reg      func(fd int32) unix.Errno // REG_DMABUF_MR
	destroy  unix.Errno                // MR_DESTROY
	rereg    unix.Errno                // REREG_MR
	changed  []reregBlock              // what REREG_MR was asked
	live     int
	made     uint32 // handles and keys count up
	rekeyed  uint32 // REREG_MR answers the handle as keys, or this
	requests int
}

// The offsets are those of struct ib_uverbs_ioctl_hdr and ib_uverbs_attr; that
// package's own tests hold them against golden bytes.
func (k *kernel) Ioctl(_ int, req uint32, arg unsafe.Pointer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if req != uverbs.VerbsIoctl {
		return unix.ENOTTY
	}
	object, method := *(*uint16)(unsafe.Add(arg, 2)), *(*uint16)(unsafe.Add(arg, 4))
	if *(*uint32)(unsafe.Add(arg, 16)) != k.driver {
		return unix.EINVAL
	}
	data := func(i int) unsafe.Pointer { return unsafe.Add(arg, 24+16*i+8) }
	k.requests++
	var n unix.Errno
	switch {
	case object == 7 && method == 4:
		if n = k.reg(*(*int32)(data(5))); n == 0 {
			k.live++
			k.made++
			*(*uint32)(data(0)) = k.made // handle
			**(**uint32)(data(7)), **(**uint32)(data(8)) = k.made, k.made
		}
	case object == 7 && method == 1:
		if n = k.destroy; n == 0 {
			k.live--
		}
	case object == 0 && method == 0 && *(*uint64)(data(2)) == 11:
		k.changed = append(k.changed, **(**reregBlock)(data(0)))
		n = k.rereg
		if n == 0 {
			block := k.changed[len(k.changed)-1]
			key := cmp.Or(k.rekeyed, block.handle)
			**(**[2]uint32)(data(1)) = [2]uint32{key, key}
		}
	default:
		n = unix.EPROTONOSUPPORT
	}
	if n != 0 {
		return n
	}
	return nil
}

// reregBlock is struct ib_uverbs_rereg_mr.
type reregBlock struct {
	_                    uint64
	handle, flags        uint32
	start, length, hcaVA uint64
	pd, access           uint32
}

// always is a kernel's answer to a descriptor that is open, with EBADF for -1.
func always(n unix.Errno) func(int32) unix.Errno {
	return func(fd int32) unix.Errno {
		if fd < 0 {
			return unix.EBADF
		}
		return n
	}
}

// deviceTree is a sysfs with one RoCE device.
func deviceTree(t testing.TB) sysfs.FS { return sysfs.New(testenv.DeviceTree(t)) }

func scripted(t *testing.T, s *script, k *kernel) *PD {
	t.Helper()
	c, err := open(s, "roce0", deviceTree(t), k)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, x := range []interface{ Close() error }{pd, c} {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
		s.nothingLeft(t)
		if k.live != 0 {
			t.Errorf("%d MRs left in the kernel", k.live)
		}
		for _, block := range k.changed {
			if block.flags&1 != 0 || block.start != 0 || block.length != 0 || block.hcaVA != 0 {
				t.Errorf("REREG_MR was asked to change the memory: %+v", block)
			}
		}
	})
	return pd
}

// openFile is a descriptor that is open and no dma-buf; checks are skipped so
// that it reaches the script.
func openFile(t *testing.T) int {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}
