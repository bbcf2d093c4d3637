// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"errors"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// failed waits for an entry of an operation that has failed.
func (w *world) failed(e *Endpoint, context any, flags Flags, code error, status ibvfd.WCStatus) {
	w.t.Helper()
	c := w.wait(e)
	if c.failed == nil {
		w.t.Fatalf("completion %+v, want %v", c.CQEntry, code)
	}
	f := c.failed
	var wc *ibvfd.WCError
	if f.OpContext != context || f.Flags != flags || f.Err != code || f.ProvErrno != int(status) || !errors.Is(f, code) || Code(f) != f.Err ||
		!errors.As(f, &wc) || wc.Status != status || f.VendorErr != wc.VendorErr || f.Error() == "" || f.SrcAddr == 0 {
		w.t.Fatalf("%v, want %v with context %v, %v and status %d", f, flags, context, code, status)
	}
}

// An operation that the peer's NIC refuses makes an error entry, behind the entries of earlier
// operations. Later ones are flushed, and a new connection works.
func testRemoteRefusals(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a, 100), s.kinds[1].make(t, w.b, 100)
	r := testenv.Seeded(t)
	here, there := random(t, r, mine), random(t, r, theirs)
	for name, bad := range map[string]struct {
		access Flags
		change func(*forgery)
	}{
		"wrong key":   {allAccess, func(f *forgery) { f.key ^= 0xff }},
		"past it":     {allAccess, func(f *forgery) { f.addr++ }},
		"not allowed": {RemoteRead, func(f *forgery) { f.access = allAccess }},
	} {
		k := w.share(theirs.All(), bad.access)
		w.ok(w.a.Recv(IOV{}, w.ab, "receive"))
		w.ok(w.a.Write(IOV{}, w.ab, RMAIOV{}, "before"))
		w.ok(w.a.Write(mine.All(), w.ab, forged(t, k, bad.change).All(), "bad"))
		w.done(w.a, RMA|Write, "before")
		w.failed(w.a, "bad", RMA|Write, EIO, ibvfd.WCRemAccessErr)
		w.failed(w.a, "receive", Msg|Recv, ECANCELED, ibvfd.WCWRFlushErr)
		if err := w.a.Lost(limited(t), w.ab); !errors.Is(err, ENOTCONN) {
			t.Errorf("%s: lost: %v", name, err)
		}
		w.ok(w.a.Remove(w.ab))
		same(t, name+", there", theirs, there)
		w.connect()
		if err := w.a.Write(mine.All(), w.ab, k.All(), nil); !errors.Is(err, ENOKEY) && !errors.Is(err, EACCES) {
			t.Errorf("%s: a key of the connection before: %v", name, err)
		}
	}
	w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), RemoteWrite).All(), 1))
	w.done(w.a, RMA|Write, 1)
	same(t, "after recovery", theirs, here)
}

// A NIC may acknowledge a write whose bytes are still on their way to the memory. With
// DeliveryComplete the completion says that they have arrived.
func TestDeliveryComplete(t *testing.T) {
	s := inMemory(t)
	w := s.world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a, 100), s.kinds[1].make(t, w.b, 100)
	r := testenv.Seeded(t)
	here, there := random(t, r, mine), random(t, r, theirs)
	s.net.OnPlace(func(memnic.Placement) time.Duration { return memnic.Held })
	defer s.net.OnPlace(nil)
	k := w.share(theirs.All(), allAccess)
	w.ok(w.a.WriteMsg(MsgRMA{IOV: []IOV{mine.All()}, RMAIOV: []RMAIOV{k.All()}, Context: 1}, TransmitComplete))
	w.done(w.a, RMA|Write, 1)
	same(t, "acknowledged", theirs, there)
	w.ok(w.a.WriteMsg(MsgRMA{IOV: []IOV{mine.All()}, RMAIOV: []RMAIOV{k.All()}, Context: 2}, DeliveryComplete))
	w.done(w.a, RMA|Write, 2)
	same(t, "delivered", theirs, here)
}

// Errors that are found before the NIC has got anything have libfabric's codes. No completion
// comes, and the connection lives.
func TestRefusedBeforehand(t *testing.T) {
	s := inMemory(t)
	w := s.world(t, EndpointOptions{InjectSize: 32})
	mine, theirs := hostKind.make(t, w.a, 100), hostKind.make(t, w.b, 100)
	other := hostKind.make(t, s.end(t, EndpointOptions{}), 100)
	ro := must(mine.ReadOnlySlice(0, 50))(t)
	closing(t, ro)
	closed := must(domainFor(w.a).AllocHost(8))(t)
	w.ok(closed.Close())
	all, read, write := w.share(theirs.All(), allAccess), w.share(theirs.All(), RemoteRead), w.share(theirs.All(), RemoteWrite)
	l := mine.All()
	lonely := s.end(t, EndpointOptions{})
	key := func(mem IOV, access Flags) error {
		_, err := w.a.Key(mem, w.ab, access)
		return err
	}
	result := []IOV{mine.Part(0, 8)}
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"longer here":             {w.a.Write(l, w.ab, all.Part(0, 99), nil), EINVAL},
		"past the end here":       {w.a.Write(mine.Part(1, 100), w.ab, all.All(), nil), EINVAL},
		"past the end there":      {w.a.Read(l, w.ab, all.Part(1, 100), nil), EINVAL},
		"no remote memory":        {w.a.Write(l, w.ab, RMAIOV{Length: 100}, nil), EINVAL},
		"no local memory":         {w.a.Write(IOV{Length: 9}, w.ab, all.Part(0, 9), nil), EINVAL},
		"write to what is read":   {w.a.Write(l, w.ab, read.All(), nil), EACCES},
		"read of what is written": {w.a.Read(l, w.ab, write.All(), nil), EACCES},
		"atomic on it":            {w.a.FetchAtomic(1, mine.Part(0, 8), w.ab, write.Part(0, 8), Sum, nil), EACCES},
		"read into read-only":     {w.a.Read(ro.All(), w.ab, all.Part(0, 50), nil), EACCES},
		"askew":                   {w.a.FetchAtomic(1, mine.Part(0, 8), w.ab, all.Part(4, 8), Sum, nil), EINVAL},
		"a fetch atomic that":     {w.a.FetchAtomic(1, mine.Part(0, 8), w.ab, all.Part(0, 8), CSwap, nil), EOPNOTSUPP},
		"a fetch atomic message":  {w.a.FetchAtomicMsg(MsgAtomic{Result: result, Op: 1}, 0), EOPNOTSUPP},
		"a compare atomic that":   {w.a.CompareAtomic(1, 2, mine.Part(0, 8), w.ab, all.Part(0, 8), Sum, nil), EOPNOTSUPP},
		"a compare atomic msg":    {w.a.CompareAtomicMsg(MsgAtomic{Result: result}, 2, 0), EOPNOTSUPP},
		"another domain's memory": {w.a.Write(other.All(), w.ab, all.All(), nil), EINVAL},
		"closed memory":           {w.a.Write(closed.All(), w.ab, all.Part(0, 8), nil), EBADF},
		"too much to inject":      {w.a.InjectWrite(make([]byte, 33), w.ab, all.Part(0, 33)), EMSGSIZE},
		"data of 33 bits":         {w.a.WriteData(l, 1<<32, w.ab, all.All(), nil), EINVAL},
		"no such peer":            {w.a.Write(l, w.ab+9, all.All(), nil), ENOTCONN},
		"no peer":                 {lonely.Send(IOV{}, AddrUnspec, nil), ENOTCONN},
		"commit-complete":         {w.a.WriteMsg(MsgRMA{}, CommitComplete), EOPNOTSUPP},
		"an injected read":        {w.a.ReadMsg(MsgRMA{}, Inject), EOPNOTSUPP},
		"a read with data":        {w.a.ReadMsg(MsgRMA{}, RemoteCQData), EOPNOTSUPP},
		"a durable read":          {w.a.ReadMsg(MsgRMA{}, CommitComplete), EOPNOTSUPP},
		"a message delivered":     {w.a.SendMsg(Message{}, DeliveryComplete), EOPNOTSUPP},
		"an injected atomic":      {w.a.FetchAtomicMsg(MsgAtomic{Op: Sum}, Inject), EOPNOTSUPP},
		"another flag":            {w.a.WriteMsg(MsgRMA{}, RMA), EBADFLAGS},
		"an unknown flag":         {w.a.SendMsg(Message{}, 1<<60), EBADFLAGS},
		"delivery, not read":      {w.a.WriteMsg(MsgRMA{IOV: []IOV{l}, RMAIOV: []RMAIOV{write.All()}}, DeliveryComplete), EACCES},
		"a key for nothing":       {key(l, 0), EINVAL},
		"a key for local use":     {key(l, RemoteRead|Write), EINVAL},
		"a key to write":          {key(ro.All(), RemoteWrite), EACCES},
		"a key beyond":            {key(mine.Part(99, 2), RemoteRead), EINVAL},
		"a peer's key":            {all.Close(), EINVAL},
		"no key to offer":         {w.a.Offer(limited(t), w.ab, nil), EINVAL},
		"no source":               {second(domainFor(w.a).Register(nil, MROptions{})), EINVAL},
		"no allocator":            {second(domainFor(w.a).Allocate(limited(t), nil, 1, MROptions{})), EINVAL},
		"no bytes":                {second(domainFor(w.a).AllocHost(0)), EINVAL},
		"too many bytes":          {second(domainFor(w.a).AllocHost(1 << 40)), ENOMEM},
		"a negative size":         {second(domainFor(w.a).Endpoint(EndpointOptions{TxSize: -1})), EINVAL},
		"memory in use":           {theirs.Close(), EBUSY},
		"a domain in use":         {domainFor(w.a).Close(), EBUSY},
		"no room for entries":     {second(w.a.CQ().Sread(limited(t), nil)), EINVAL},
		"a bad address":           {second(w.a.Insert("nowhere")), EOTHER},
		"nobody listens":          {second(w.a.Connect(limited(t), "127.0.0.1:1")), ECONNREFUSED},
		"beyond loopback":         {second(w.a.Listen("0.0.0.0:0")), EPERM},
		"a key that is none":      {new(Key).UnmarshalBinary([]byte{9}), EINVAL},
	} {
		if !errors.Is(c.err, c.want) || Code(c.err) != c.want {
			t.Errorf("%s: %v with code %v, want %v", name, c.err, Code(c.err), c.want)
		}
	}
	if err := w.a.InjectWrite(make([]byte, 33), w.ab, all.Part(0, 33)); !errors.Is(err, failure.ErrLimit) {
		t.Errorf("too much to inject: %v", err)
	}
	if n, err := w.a.CQ().Read(make([]CQEntry, 1)); n != 0 || !errors.Is(err, EAGAIN) {
		t.Errorf("%d completions of what was refused, %v", n, err)
	}
	w.ok(w.a.Write(l, w.ab, all.All(), 1))
	w.done(w.a, RMA|Write, 1)
}

func second[T any](_ T, err error) error { return err }

// A key that is closed is refused from then on.
func TestKeyClose(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a, 8), hostKind.make(t, w.b, 8)
	k := must(w.b.Key(theirs.All(), w.ba, RemoteWrite))(t)
	w.ok(w.b.Offer(limited(t), w.ba, k))
	remote := must(w.a.Offered(limited(t), AddrUnspec))(t)
	w.ok(w.a.Write(mine.All(), AddrUnspec, remote.All(), 1))
	w.done(w.a, RMA|Write, 1)
	for range 2 {
		w.ok(k.Close())
	}
	w.ok(w.a.Write(mine.All(), AddrUnspec, remote.All(), 2))
	w.failed(w.a, 2, RMA|Write, EIO, ibvfd.WCRemAccessErr)
}

// Without atomics in the NIC a key to read and write is one without atomics.
func TestNoAtomics(t *testing.T) {
	n := memnic.New()
	d := domainOf(memory.NewNIC(n.Device("mem0", memnic.Limits{NoAtomics: true}), memory.NICOptions{}))
	closing(t, d)
	e := must(d.Endpoint(EndpointOptions{}))(t)
	closing(t, e)
	m := must(d.AllocHost(8))(t)
	if k := must(e.Key(m.All(), AddrUnspec, allAccess))(t); k.Access() != allAccess {
		t.Errorf("the key allows %v", k.Access())
	} else if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
