// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/throttle"
)

// Each rejection is printed; of a flood, the number.
func TestOnReject(t *testing.T) {
	var out bytes.Buffer
	s := New(func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) })
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	now := time.Unix(1000, 0)
	s.rejects.Now = func() time.Time { return now }
	for range throttle.Most + 3 {
		s.rejected(from, fmt.Errorf("read an exchange: %w", engine.ErrMalformed))
	}
	if got := strings.Count(out.String(), "127.0.0.1:9 was rejected: read an exchange"); got != throttle.Most || !strings.Contains(out.String(), "TLS") {
		t.Errorf("%d told of:\n%s", got, &out)
	}
	out.Reset()
	now, s.secure = now.Add(time.Second), true
	s.rejected(from, engine.ErrMalformed)
	if got := out.String(); !strings.Contains(got, " (and 3 others before): ") || strings.Contains(got, "TLS") {
		t.Errorf("%q", got)
	}
}
