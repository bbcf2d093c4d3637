// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// MRs are the MRs that rdma netlink lists, by the PCI function of their
// device, "" for those of devices on no PCI bus. The list does not have the memory of an
// MR, so it only narrows down to which one an attachment belongs.
type MRs map[string][]listedMR

type listedMR struct {
	rdmanl.MR
	device string
}

// ListMRs asks the kernel for the MRs of all devices. sys is the root of sysfs.
func ListMRs(sys string) (MRs, error) {
	c, err := rdmanl.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	devices, err := c.Devices()
	if err != nil {
		return nil, err
	}
	list := MRs{}
	for _, d := range devices {
		mrs, err := c.MRs(d.Name)
		if err != nil {
			return list, fmt.Errorf("%s: %w", d.Name, err)
		}
		at := ""
		if addr, ok := pci.DeviceOf(sysfs.New(sys), "class/infiniband/"+d.Name+"/device"); ok {
			at = addr.String()
		}
		for _, m := range mrs {
			if m.Kernel == "" {
				list[at] = append(list[at], listedMR{m, d.Name})
			}
		}
	}
	return list, nil
}

// shownMRs bounds how many MRs are named for one attachment.
const shownMRs = 8

// Of says which MRs an attachment may belong to, "" if it seems to be no MR's: pci is the
// function of the importing device, size that of the buffer in bytes.
func (list MRs) Of(pci string, size uint64) string {
	var words []string
	n := 0
	for _, m := range list[pci] {
		if m.Length > size {
			continue
		}
		if n++; n > shownMRs {
			continue
		}
		keys := ""
		if m.KeysKnown {
			keys = fmt.Sprintf(", lkey %#x, rkey %#x", m.LKey, m.RKey)
		}
		words = append(words, fmt.Sprintf("%s MR %d of %s by thread %d%s", m.device, m.Number, bytesize.Format(int64(m.Length)), m.PID, keys))
	}
	if n == 0 {
		return ""
	}
	if n > shownMRs {
		words = append(words, fmt.Sprintf("%d more", n-shownMRs))
	}
	return "which MR it belongs to, if any; its device has, of that size at most: " + strings.Join(words, "; ")
}
