// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
)

func TestAddrs(t *testing.T) {
	a := netip.MustParseAddr
	read := func(n int, kind Kind, body []byte) ([]netip.Addr, error) {
		us, them := net.Pipe()
		defer us.Close()
		go func() {
			defer them.Close()
			_ = WriteMessage(them, kind, body)
		}()
		return ReadAddrs(us, n)
	}
	none := netip.Addr{}
	list := []netip.Addr{a("10.1.2.3"), none, a("fd00::1"), a("127.0.0.1"), a("0.0.0.0"), a("224.0.0.1"), a("fe80::1"), a("255.255.255.255")}
	got, err := read(len(list), MsgAddrs, EncodeAddrs(list))
	if want := []netip.Addr{list[0], none, list[2], none, none, none, none, none}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := ReadAddrs(nil, 0); got != nil || err != nil { // nothing follows
		t.Error(got, err)
	}
	for name, body := range map[string][]byte{"too few": make([]byte, addrSize), "too many": make([]byte, 3*addrSize), "a part": make([]byte, 2*addrSize-1), "most": make([]byte, addrSize*MaxRails+1)} {
		if got, err := read(2, MsgAddrs, body); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := read(2, MsgText, make([]byte, 2*addrSize)); !errors.Is(err, ErrMalformed) {
		t.Errorf("another kind: %v, %v", got, err)
	}
}
