// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
)

// The right to flush is for host memory, where kernel, device and memory have
// it: each refusal says what to do.
func TestFlushAccess(t *testing.T) {
	if s := (AccessFlushGlobal | AccessFlushPersistent).String(); s != "flush-global|flush-persistent" {
		t.Error(s)
	}
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	mem, err := hostmem.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	host := MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 100, Access: AccessFlushGlobal | AccessFlushPersistent, Owner: mem}
	mr, err := pd.RegMR(host) // no other flag is needed
	if err != nil {
		t.Fatal(err)
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	global := host
	global.Access = AccessLocalWrite | AccessFlushGlobal
	dma := MRAttr{Kind: DMABufFD, Length: 100, Access: global.Access}
	for name, c := range map[string]struct {
		attr  MRAttr
		errno unix.Errno // the kernel's
		cause fault.Cause
		words []string
		never string
	}{
		"dma-buf":    {dma, 0, fault.CauseAccess, []string{"a dma-buf MR cannot have flush-global", "leave flush-global out", "only host memory"}, "local-write out"},
		"not there":  {global, unix.EINVAL, fault.CauseAccess, []string{"flush-global takes Linux 6.2", "leave flush-global out"}, "persistent"},
		"not pmem":   {host, unix.EINVAL, fault.CauseAccess, []string{"Linux 6.2 and memory that is persistent", "DAX"}, ""},
		"not by NIC": {global, unix.EOPNOTSUPP, fault.CauseNotSupported, []string{"the device has no flush-global", "leave flush-global out"}, "persistent"},
	} {
		s.failWith("regHost", c.errno)
		ask := c.attr.request()
		err := pd.ctx.broken(&c.attr, explain.OfDMABuf(&ask, 100)) // no registration of a dma-buf gets further
		if c.attr.Kind == HostMemory {
			_, err = pd.RegMR(c.attr)
		}
		var e *RegError
		if !errors.As(err, &e) || e.Cause != c.cause {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", name, err, w)
			}
		}
		if c.never != "" && strings.Contains(err.Error(), c.never) {
			t.Errorf("%s: %v has %q", name, err, c.never)
		}
	}
}
