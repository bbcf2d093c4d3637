// SPDX-License-Identifier: Apache-2.0

package datadirect_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/datadirect"
	"github.com/gpurdma/gpurdma/internal/dl"
)

// The answer names the function, or says why none is known.
func TestAsk(t *testing.T) {
	unloaded := fmt.Errorf("%w (%w)", &dl.Error{Name: "libmlx5.so.1", Reason: "cannot open shared object file"}, unix.ENOSYS)
	for _, c := range []struct {
		dir string
		err error
		why string
	}{
		{"/sys/devices/pci0008:00/0008:00:00.0/0008:03:00.0", nil, "mlx5's driver has taken 0008:03:00.0"},
		{"/sys", nil, "names no PCI function"},
		{"", unix.ENODEV, "no DMA function"},
		{"", unix.EOPNOTSUPP, "no DMA function"},
		{"", unix.ENOSYS, "libmlx5 cannot say"},
		{"", unloaded, "libmlx5 does not load: cannot open shared object file"},
		{"", unix.EPERM, "EPERM"},
	} {
		a := datadirect.Ask(func() (string, error) { return c.dir, c.err })
		if has := c.dir != "" && c.dir != "/sys"; a.Has != has || has && a.Function.String() != "0008:03:00.0" || !strings.Contains(a.Why, c.why) {
			t.Errorf("%q, %v: %+v", c.dir, c.err, a)
		}
	}
}
