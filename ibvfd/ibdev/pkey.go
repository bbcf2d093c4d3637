// SPDX-License-Identifier: Apache-2.0

package ibdev

import (
	"fmt"
	"path"
	"strconv"

	"github.com/gpurdma/gpurdma/internal/sysfs"
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

// ReadPKeys reads a port's P_Key table: by index, 0 where a place is not in use. A port
// that the device does not have, or has no table of, is fs.ErrNotExist. sys is the root
// of sysfs, "" for /sys.
func ReadPKeys(sys, name string, port int) ([]PKey, error) {
	s := sysfs.New(sys)
	dir := path.Join(portDir(name, port), "pkeys")
	places, err := s.List(dir)
	if err != nil {
		return nil, err
	}
	var keys []PKey
	for _, place := range places {
		index, err := strconv.ParseUint(place, 10, 16)
		if err != nil {
			continue
		}
		text, err := readAttr(s, path.Join(dir, place))
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
