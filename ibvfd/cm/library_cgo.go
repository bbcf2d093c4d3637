// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cm

/*
#cgo CFLAGS: -I${SRCDIR}/../internal/libibverbs
#include <stdlib.h>
#include "cm_lib.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/dl"
)

const soname = "librdmacm.so.1"

// librdmacm is rdma_cm through the library, which stays loaded.
type librdmacm struct{ c *C.struct_cm_lib } // C memory

var loaded dl.Once[manager]

func library() (manager, error) { return loaded.Get(loadLibrary) }

func loadLibrary() (manager, error) {
	lib, err := dl.Open(soname)
	if err != nil {
		return nil, notLoaded(err)
	}
	c := (*C.struct_cm_lib)(C.calloc(1, C.sizeof_struct_cm_lib))
	if c == nil {
		return nil, &failure.Error{Op: "load", Device: soname, Err: unix.ENOMEM}
	}
	for _, s := range symbols(c) {
		if *s.slot, err = lib.Sym(s.name, s.version); err != nil {
			C.free(unsafe.Pointer(c))
			return nil, &failure.Error{
				Op: "load", Device: soname, Detail: fmt.Sprintf("it has no %s@%s", s.name, s.version), Err: err,
				Remedy: "install librdmacm of rdma-core 23 or newer",
			}
		}
	}
	return &librdmacm{c}, nil
}

// notLoaded tells a library that is not installed from one that does not load.
func notLoaded(err error) error {
	e := &failure.Error{
		Op: "load", Device: soname, Err: ErrNoLibrary,
		Remedy: "install it (Debian: apt-get install librdmacm1)",
	}
	var why *dl.Error
	if errors.As(err, &why) && !errors.Is(err, fs.ErrNotExist) {
		e.Detail, e.Err, e.Remedy = why.Reason, ErrBrokenLibrary, why.Remedy()
	}
	return e
}

type symbol struct {
	name, version string
	slot          *unsafe.Pointer
}

// slot is where a function's address goes.
func slot[F any](field *F) *unsafe.Pointer { return (*unsafe.Pointer)(unsafe.Pointer(field)) }

// symbols lists what is looked up, with versions as in rdma-core's
// librdmacm.map.
func symbols(c *C.struct_cm_lib) []symbol {
	return []symbol{
		{"rdma_create_event_channel", "RDMACM_1.0", slot(&c.create_event_channel)},
		{"rdma_destroy_event_channel", "RDMACM_1.0", slot(&c.destroy_event_channel)},
		{"rdma_create_id", "RDMACM_1.0", slot(&c.create_id)},
		{"rdma_destroy_id", "RDMACM_1.0", slot(&c.destroy_id)},
		{"rdma_migrate_id", "RDMACM_1.0", slot(&c.migrate_id)},
		{"rdma_bind_addr", "RDMACM_1.0", slot(&c.bind_addr)},
		{"rdma_resolve_addr", "RDMACM_1.0", slot(&c.resolve_addr)},
		{"rdma_resolve_route", "RDMACM_1.0", slot(&c.resolve_route)},
		{"rdma_listen", "RDMACM_1.0", slot(&c.listen)},
		{"rdma_connect", "RDMACM_1.0", slot(&c.connect)},
		{"rdma_accept", "RDMACM_1.0", slot(&c.accept)},
		{"rdma_reject", "RDMACM_1.0", slot(&c.reject)},
		{"rdma_establish", "RDMACM_1.2", slot(&c.establish)},
		{"rdma_disconnect", "RDMACM_1.0", slot(&c.disconnect)},
		{"rdma_init_qp_attr", "RDMACM_1.2", slot(&c.init_qp_attr)},
		{"rdma_get_cm_event", "RDMACM_1.0", slot(&c.get_cm_event)},
		{"rdma_ack_cm_event", "RDMACM_1.0", slot(&c.ack_cm_event)},
	}
}

// result turns a cm_ function's answer into an error.
func result(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return unix.Errno(rc)
}

func (l *librdmacm) channel() (channel, error) {
	ch := &libChannel{lib: l}
	if err := result(C.cm_create_event_channel(l.c, &ch.c)); err != nil {
		return nil, err
	}
	return ch, nil
}

type libChannel struct {
	lib *librdmacm
	c   *C.struct_cm_event_channel
}

func (ch *libChannel) fd() int { return int(ch.c.fd) }

func (ch *libChannel) close() { C.cm_destroy_event_channel(ch.lib.c, ch.c) }

func (ch *libChannel) newID() (identifier, error) {
	id := &libID{lib: ch.lib}
	if err := result(C.cm_create_id(ch.lib.c, ch.c, &id.c)); err != nil {
		return nil, err
	}
	return id, nil
}

func (ch *libChannel) event() (event, error) {
	var t C.struct_cm_taken
	if err := result(C.cm_take_event(ch.lib.c, ch.c, &t)); err != nil {
		return event{}, err
	}
	e := event{
		typ: eventType(t.event), status: int(t.status),
		asked: depths{uint8(t.responder_resources), uint8(t.initiator_depth)},
		data:  C.GoBytes(unsafe.Pointer(&t.private_data), C.int(t.private_len)),
	}
	if e.typ == eventConnectRequest {
		e.id = &libID{ch.lib, t.id}
	}
	return e, nil
}

type libID struct {
	lib *librdmacm
	c   *C.struct_cm_id
}

func (id *libID) destroy() error { return result(C.cm_destroy_id(id.lib.c, id.c)) }

func (id *libID) migrate(to channel) error {
	return result(C.cm_migrate_id(id.lib.c, id.c, to.(*libChannel).c))
}

func (id *libID) bind(a netip.AddrPort) error {
	ip := toC(a)
	return result(C.cm_bind_addr(id.lib.c, id.c, &ip))
}

func (id *libID) resolveAddr(src, dst netip.AddrPort, timeoutMS int) error {
	from, to := toC(src), toC(dst)
	return result(C.cm_resolve_addr(id.lib.c, id.c, &from, &to, C.int(timeoutMS)))
}

func (id *libID) resolveRoute(timeoutMS int) error {
	return result(C.cm_resolve_route(id.lib.c, id.c, C.int(timeoutMS)))
}

func (id *libID) listen(backlog int) error {
	return result(C.cm_listen(id.lib.c, id.c, C.int(backlog)))
}

func (id *libID) connect(p *connParam) error {
	c, data := p.toC()
	return result(C.cm_connect(id.lib.c, id.c, &c, data, C.uint8_t(len(p.data))))
}

func (id *libID) accept(p *connParam) error {
	c, data := p.toC()
	return result(C.cm_accept(id.lib.c, id.c, &c, data, C.uint8_t(len(p.data))))
}

func (id *libID) reject(data []byte) error {
	return result(C.cm_reject(id.lib.c, id.c, unsafe.Pointer(unsafe.SliceData(data)), C.uint8_t(len(data))))
}

func (id *libID) establish() error { return result(C.cm_establish(id.lib.c, id.c)) }

func (id *libID) disconnect() error { return result(C.cm_disconnect(id.lib.c, id.c)) }

func (id *libID) addrs() (local, remote netip.AddrPort) {
	var src, dst C.struct_cm_ip
	C.cm_addrs(id.c, &src, &dst)
	return fromC(&src), fromC(&dst)
}

func (id *libID) device() (device, error) {
	if id.c.verbs == nil {
		return device{}, nil
	}
	ctx, err := id.context(nil)
	if err != nil {
		return device{}, err
	}
	a, err := ctx.QueryDevice()
	if err := errors.Join(err, ctx.Close()); err != nil {
		return device{}, err
	}
	return device{
		name: ctx.Name(), port: int(id.c.port_num),
		most: depths{uint8(min(a.MaxReadAtomic, 0xff)), uint8(min(a.MaxInitReadAtom, 0xff))},
	}, nil
}

func (id *libID) context(closed func()) (*ibvfd.Context, error) {
	return ibvfd.Wrap(unsafe.Pointer(id.c.verbs), closed)
}

// attributes asks for each of the states: the fields that the library sets grow from
// one to the next, and the answers do not repeat each other.
func (id *libID) attributes() (ibvfd.ManagedAttr, error) {
	var init, rtr, rts C.struct_vb_qp_attr
	for _, s := range []struct {
		state ibvfd.QPState
		attr  *C.struct_vb_qp_attr
	}{{ibvfd.StateInit, &init}, {ibvfd.StateRTR, &rtr}, {ibvfd.StateRTS, &rts}} {
		if err := result(C.cm_init_qp_attr(id.lib.c, id.c, C.int(s.state), s.attr)); err != nil {
			return ibvfd.ManagedAttr{}, err
		}
	}
	ah := &rtr.ah_attr
	a := ibvfd.ManagedAttr{
		Port: int(init.port_num), PKeyIndex: int(init.pkey_index), Access: ibvfd.Access(init.qp_access_flags),
		GIDIndex: int(ah.grh.sgid_index),
		MTU:      128 << rtr.path_mtu, PSN: uint32(rts.sq_psn), MinRNRTimer: uint8(rtr.min_rnr_timer),
		MaxDestRead: uint8(rtr.max_dest_rd_atomic), MaxRead: uint8(rts.max_rd_atomic),
		Timeout: uint8(rts.timeout), RetryCount: uint8(rts.retry_cnt), RNRRetry: uint8(rts.rnr_retry),
	}
	a.Remote = ibvfd.Endpoint{QPN: uint32(rtr.dest_qp_num), PSN: uint32(rtr.rq_psn), LID: uint16(ah.dlid), GID: ah.grh.dgid}
	a.PathAttr = ibvfd.PathAttr{
		HopLimit: uint8(ah.grh.hop_limit), TrafficClass: uint8(ah.grh.traffic_class), FlowLabel: uint32(ah.grh.flow_label),
		SL: uint8(ah.sl), SrcPathBits: uint8(ah.src_path_bits), StaticRate: uint8(ah.static_rate),
		Global: ah.is_global != 0,
	}
	return a, nil
}

func (p *connParam) toC() (C.struct_cm_conn_param, unsafe.Pointer) {
	return C.struct_cm_conn_param{
		responder_resources: C.uint8_t(p.depths.in), initiator_depth: C.uint8_t(p.depths.out),
		retry_count: C.uint8_t(p.retryCount), rnr_retry_count: C.uint8_t(p.rnrRetry), qp_num: C.uint32_t(p.qpn),
	}, unsafe.Pointer(unsafe.SliceData(p.data))
}

func toC(a netip.AddrPort) C.struct_cm_ip {
	ip := C.struct_cm_ip{port: C.uint16_t(a.Port())}
	raw := a.Addr().AsSlice()
	switch len(raw) {
	case 4:
		ip.family = 4
	case 16:
		ip.family = 6
		scope, _ := strconv.ParseUint(a.Addr().Zone(), 10, 32) // a number: resolved by parse
		ip.scope = C.uint32_t(scope)
	}
	for i, b := range raw {
		ip.ip[i] = C.uint8_t(b)
	}
	return ip
}

func fromC(ip *C.struct_cm_ip) netip.AddrPort {
	var raw [16]byte
	for i := range raw {
		raw[i] = byte(ip.ip[i])
	}
	var a netip.Addr
	switch ip.family {
	case 4:
		a = netip.AddrFrom4([4]byte(raw[:4]))
	case 6:
		a = netip.AddrFrom16(raw)
		if ip.scope != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(ip.scope), 10))
		}
	default:
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, uint16(ip.port))
}
