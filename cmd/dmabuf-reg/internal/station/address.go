// SPDX-License-Identifier: Apache-2.0

package station

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
)

// DefaultListen is the address that serve listens on without --listen.
const DefaultListen = "127.0.0.1:7471"

// OverCM is before an address that rdma_cm connects to, instead of TCP.
const OverCM = "rdma_cm://"

// CheckAddr refuses what is no address of a server.
func CheckAddr(addr string) error {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(addr, OverCM))
	if err != nil {
		return fmt.Errorf("%q is no address: write HOST:PORT, such as 10.0.0.1%s", addr, strings.TrimPrefix(DefaultListen, "127.0.0.1"))
	}
	if port == "" {
		return fmt.Errorf("%q has no port: write HOST:PORT", addr)
	}
	n, err := strconv.Atoi(port)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n < 0 || n > math.MaxUint16):
		return fmt.Errorf("%q: a port is 0 to %d", addr, math.MaxUint16)
	case err != nil:
		if _, err := net.LookupPort("tcp", port); err != nil {
			return fmt.Errorf("%q: %q is no port: write a number, or a name that /etc/services has", addr, port)
		}
	}
	return nil
}
