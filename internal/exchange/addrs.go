// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gpurdma/gpurdma/failure"
)

// A listener's first hello has the addresses of its NICs, so that a caller's later rails use exchanges of
// their own ways: the exchange of one NIC's address is lost with that NIC.

// addrSize is the size of an address on the wire; 0 stands for none.
const addrSize = 16

// EncodeAddrs returns the body of a message of addresses, by the number of the rail.
func EncodeAddrs(list []netip.Addr) (b []byte) {
	for _, a := range list {
		var raw [addrSize]byte
		if a.IsValid() {
			raw = a.As16()
		}
		b = append(b, raw[:]...)
	}
	return b
}

// ReadAddrs reads the addresses that a hello has announced. An address that no host can have is left out.
func ReadAddrs(tcp net.Conn, n int) (list []netip.Addr, err error) {
	if n == 0 {
		return nil, nil
	}
	body, err := ReadMessage(tcp, MsgAddrs)
	if err == nil && len(body) != n*addrSize {
		err = &failure.Error{Op: "read an exchange", Detail: fmt.Sprintf("%d bytes of addresses, announced with %d", len(body), n*addrSize), Err: ErrMalformed}
	}
	if err != nil {
		return nil, err
	}
	for i := range n {
		a := netip.AddrFrom16([addrSize]byte(body[i*addrSize:])).Unmap()
		if !a.IsGlobalUnicast() {
			a = netip.Addr{}
		}
		list = append(list, a)
	}
	return list, nil
}
