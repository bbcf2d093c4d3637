// SPDX-License-Identifier: Apache-2.0

package rdmanl

import "github.com/mdlayher/netlink"

// Owner is the process, or the kernel module, that made a resource.
type Owner struct {
	// PID is the thread that made it, as this PID namespace numbers threads: in
	// a Go program seldom the process' own number. 0 if the kernel made it.
	// Dumps leave out a resource whose thread has ended since; Summary counts
	// it.
	PID    uint32
	Kernel string // the kernel module that made it, "" for a process
}

// MR is a memory region.
type MR struct {
	Owner
	Number     uint32 // mrn
	PDN        uint32
	Length     uint64
	LKey, RKey uint32 // with CAP_NET_ADMIN only
	KeysKnown  bool
	IOVA       uint64 // kernels that show it (none of 6.1, 6.12)
}

// Summary counts a device's resources by kind: "pd", "cq", "qp", "mr", "ctx",
// "cm_id", "srq".
type Summary map[string]uint64

// Summary counts a device's resources, of all processes and the kernel.
func (c *Client) Summary(device string) (Summary, error) {
	req, err := c.request(device)
	if err != nil {
		return nil, err
	}
	counts := Summary{}
	err = c.execute(cmdResGet, netlink.Request, req, func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() != attrResSummary {
				continue
			}
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == attrResSummaryEntry {
						ad.Nested(counts.entry)
					}
				}
				return ad.Err()
			})
		}
		return ad.Err()
	})
	return counts, err
}

func (s Summary) entry(ad *netlink.AttributeDecoder) error {
	var name string
	var n uint64
	for ad.Next() {
		switch ad.Type() {
		case attrResSummaryEntryName:
			name = ad.String()
		case attrResSummaryEntryCurr:
			n = ad.Uint64()
		}
	}
	s[name] = n
	return ad.Err()
}

// entries dumps a kind of resource: each message holds a table of entries.
func (c *Client) entries(cmd uint16, table uint16, device string, entry func(*netlink.AttributeDecoder) error) error {
	req, err := c.request(device)
	if err != nil {
		return err
	}
	return c.dump(cmd, req, func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() != table {
				continue
			}
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					ad.Nested(entry)
				}
				return ad.Err()
			})
		}
		return ad.Err()
	})
}

// attr reads the attributes that all resources have.
func (o *Owner) attr(ad *netlink.AttributeDecoder) {
	switch ad.Type() {
	case attrResPID:
		o.PID = ad.Uint32()
	case attrResKernName:
		o.Kernel = ad.String()
	}
}

// MRs dumps a device's memory regions, of all processes.
func (c *Client) MRs(device string) ([]MR, error) {
	var list []MR
	err := c.entries(cmdResMRGet, attrResMR, device, func(ad *netlink.AttributeDecoder) error {
		var m MR
		lkey, rkey := false, false
		for ad.Next() {
			m.attr(ad)
			switch ad.Type() {
			case attrResMRN:
				m.Number = ad.Uint32()
			case attrResPDN:
				m.PDN = ad.Uint32()
			case attrResMRLen:
				m.Length = ad.Uint64()
			case attrResLKey:
				m.LKey, lkey = ad.Uint32(), true
			case attrResRKey:
				m.RKey, rkey = ad.Uint32(), true
			case attrResIOVA:
				m.IOVA = ad.Uint64()
			}
		}
		m.KeysKnown = lkey && rkey
		list = append(list, m)
		return ad.Err()
	})
	return list, err
}

// MRs dials, dumps a device's memory regions and hangs up.
func MRs(device string) (list []MR, err error) {
	c, err := Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.MRs(device)
}
