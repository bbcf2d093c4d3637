// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PKey is a P_Key: the number of a partition in the lower 15 bits, and whether its
// port is a full member of it, in bit 15. 0xffff is full membership of the default
// partition, the only one that RoCE has.
type PKey uint16

// Full reports whether it is that of a full member. Limited members reach full ones
// only.
func (k PKey) Full() bool { return k&0x8000 != 0 }

// Partition is the partition's number.
func (k PKey) Partition() uint16 { return uint16(k &^ 0x8000) }

// PKeys reads a port's P_Key table: by index, 0 where a place is not in use. A port that
// the device does not have, or has no table of, is fs.ErrNotExist.
func (c *Context) PKeys(port int) ([]PKey, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	keys, err := c.readPKeys(port)
	if err != nil {
		e := failed("read the P_Key table", c.name, err)
		e.Detail = fmt.Sprintf("port %d", port)
		return nil, e
	}
	return keys, nil
}

func (c *Context) readPKeys(port int) ([]PKey, error) {
	dir := path.Join(portDir(c.name, port), "pkeys")
	places, err := c.sys.List(dir)
	if err != nil {
		return nil, err
	}
	var keys []PKey
	for _, place := range places {
		index, err := strconv.ParseUint(place, 10, 16)
		if err != nil {
			continue
		}
		text, err := readAttr(c.sys, path.Join(dir, place))
		if err != nil {
			return nil, err
		}
		key, err := strconv.ParseUint(text, 0, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no P_Key", text)
		}
		if grow := int(index) + 1 - len(keys); grow > 0 {
			keys = append(keys, make([]PKey, grow)...)
		}
		keys[index] = PKey(key)
	}
	return keys, nil
}

// PKeyIndex is where a port has a partition, as [ConnectAttr] and [QP.Activate] want
// it: full membership first, or else limited, whichever of them the key says. A port
// outside of the partition is ENOENT, a key that names none EINVAL.
func (c *Context) PKeyIndex(port int, key PKey) (int, error) {
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
