// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// addresses gives the NIC's network device more addresses until the test ends. It waits for
// the kernel to fill the GID table, which takes some time.
func addresses(t testing.TB, list ...string) {
	t.Helper()
	c := must(ibvfd.Open(testNIC))(t)
	closing(t, c)
	there := func(p netip.Prefix) bool {
		_, _, err := c.ChooseGID(1, gid.Wish{Subnet: netip.PrefixFrom(p.Addr(), p.Addr().BitLen())})
		return err == nil
	}
	until := func(p netip.Prefix, want bool) {
		t.Helper()
		for end := time.Now().Add(testenv.Limit(20 * time.Second)); there(p) != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s has a GID of %v: %v", testNIC, p, !want)
			}
		}
	}
	for _, a := range list {
		p := netip.MustParsePrefix(a)
		command(t, "ip address add "+a+" dev dummy0"+noDAD(p))
		t.Cleanup(func() {
			command(t, "ip address delete "+a+" dev dummy0")
			until(p, false)
		})
		until(p, true)
	}
}

func noDAD(p netip.Prefix) string {
	if p.Addr().Is6() {
		return " nodad"
	}
	return ""
}

// A NIC has several addresses: queue pairs use the one that TCP uses, or the program's wish,
// or the one that matches the peer's choice; the order of the table does not matter.
func TestVMGIDOfConnections(t *testing.T) {
	const first, second, sixth = "10.9.0.1", "10.9.5.1", "fd00:9::1"
	s := onNIC(t).few()
	addresses(t, second+"/24", sixth+"/64")
	r := testenv.Seeded(t)
	in := func(p string) gid.Wish { return gid.Wish{Subnet: netip.MustParsePrefix(p)} }
	for name, c := range map[string]struct {
		listen string
		a, b   gid.Wish // of the connecting side and the listening side
		want   string   // for both
		why    [2]string
	}{
		"the first":          {listen: first + ":0", want: first, why: [2]string{"TCP comes through it", "TCP comes through it"}},
		"the second":         {listen: second + ":0", want: second, why: [2]string{"TCP comes through it", "TCP comes through it"}},
		"IPv6":               {listen: "[" + sixth + "]:0", want: sixth, why: [2]string{"TCP comes through it", "TCP comes through it"}},
		"loopback":           {listen: "127.0.0.1:0", want: first, why: [2]string{"says nothing of the NIC", "the peer's GID is"}},
		"wished":             {listen: "127.0.0.1:0", a: in("10.9.5.0/24"), b: in("10.9.5.0/24"), want: second, why: [2]string{"says nothing of the NIC", "the peer's GID is"}},
		"wished by one":      {listen: "127.0.0.1:0", a: in("10.9.5.0/24"), want: second, why: [2]string{"says nothing of the NIC", "the peer's GID is"}},
		"wished against TCP": {listen: first + ":0", a: gid.Wish{Family: gid.IPv6, Subnet: netip.MustParsePrefix("fd00::/8")}, want: sixth, why: [2]string{"none reaches TCP's", "the peer's GID is"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, listen: c.listen,
				a: s.endpoint(t, EndpointOptions{AllowPlaintext: true, GID: c.a, Port: 1}), b: s.endpoint(t, EndpointOptions{AllowPlaintext: true, GID: c.b})}
			w.connect()
			for i, over := range []ConnPath{must(w.a.ConnPath(w.ab))(t), must(w.b.ConnPath(w.ba))(t)} {
				if over.GID.String() != c.want || over.Peer.String() != c.want || over.Port != 1 || over.NIC != testNIC || !strings.Contains(over.Why, c.why[i]) {
					t.Errorf("%+v, want %s, %s", over, c.want, c.why[i])
				}
			}
			mine, theirs := s.kinds[1].make(t, w.a.nic, 10000), s.kinds[1].make(t, w.b.nic, 10000)
			want := random(t, r, mine, 10000)
			w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), name))
			w.done(w.a, operation.Write, name)
			same(t, "over "+c.want, theirs, want)
			w.ok(w.a.Remove(w.ab))
			if _, err := w.a.ConnPath(w.ab); !errors.Is(err, ErrNotConnected) {
				t.Errorf("the connection of a peer that was removed: %v", err)
			}
			if err := w.b.Lost(limited(t), w.ba); !errors.Is(err, ErrNotConnected) {
				t.Error(err)
			}
			if over, err := w.b.ConnPath(w.ba); err != nil || over.GID.String() != c.want {
				t.Errorf("of one that is gone: %+v, %v", over, err)
			}
		})
	}
	t.Run("a wish that cannot be", func(t *testing.T) {
		b := s.endpoint(t, EndpointOptions{})
		a := s.endpoint(t, EndpointOptions{GID: in("192.0.2.0/24")})
		_, err := a.Connect(limited(t), must(b.Listen("127.0.0.1:0"))(t).String())
		if !errors.Is(err, gid.ErrNone) || !strings.Contains(err.Error(), "outside 192.0.2.0/24") {
			t.Error(err)
		}
		if list := a.Peers(); len(list) != 0 {
			t.Errorf("peers %v", list)
		}
	})
	// If two GIDs cannot reach each other, the errors of both sides name them.
	t.Run("no way", func(t *testing.T) {
		b := s.endpoint(t, EndpointOptions{GID: gid.Wish{Family: gid.IPv4}})
		a := s.endpoint(t, EndpointOptions{GID: in("fd00::/8")})
		_, err := a.Connect(limited(t), must(b.Listen("127.0.0.1:0"))(t).String())
		if err == nil || !strings.Contains(err.Error(), "this side offered port 1 of "+testNIC+", "+sixth) {
			t.Error(err)
		}
	})
}
