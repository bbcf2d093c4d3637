// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// PKeys reads a port's P_Key table: by index, 0 where a place is not in use. A port that
// the device does not have, or has no table of, is fs.ErrNotExist.
func (c *Context) PKeys(port int) ([]ibdev.PKey, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	keys, err := ibdev.ReadPKeys(c.sys.Root(), c.name, port)
	if err != nil {
		e := failed("read the P_Key table", c.name, err)
		e.Detail = fmt.Sprintf("port %d", port)
		return nil, e
	}
	return keys, nil
}

// PKeyIndex is where a port has a partition, as [ConnectAttr] and [QP.Activate] want
// it: full membership first, or else limited, whichever of them the key says. A port
// outside of the partition is ENOENT, a key that names none EINVAL.
func (c *Context) PKeyIndex(port int, key ibdev.PKey) (int, error) {
	if key.Partition() == 0 {
		e := failed("find the P_Key", c.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("%#04x names no partition", uint16(key))
		return 0, e
	}
	keys, err := c.PKeys(port)
	if err != nil {
		return 0, err
	}
	limited := -1
	for i, k := range keys {
		switch {
		case k.Partition() != key.Partition():
		case k.Full():
			return i, nil
		case limited < 0:
			limited = i
		}
	}
	if limited >= 0 {
		return limited, nil
	}
	var has []string
	for i, k := range keys {
		if k.Partition() != 0 {
			has = append(has, fmt.Sprintf("%#04x at %d", uint16(k), i))
		}
	}
	if len(has) == 0 {
		has = append(has, "none")
	}
	e := failed("find the P_Key", c.name, unix.ENOENT)
	e.Detail = fmt.Sprintf("port %d is in no partition %#04x; it has %s", port, key.Partition(), strings.Join(has, ", "))
	e.Remedy = "ask the subnet manager's administrator to put the port into the partition, or use one that it is in"
	return 0, e
}
