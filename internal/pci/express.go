// SPDX-License-Identifier: Apache-2.0

package pci

// Express is what a PCI Express function is set to. Sizes are bytes.
type Express struct {
	PayloadCap  int // the largest packet it can take
	Payload     int // the largest it sends
	ReadRequest int
	// RelaxedOrdering lets the function mark packets that may overtake others.
	RelaxedOrdering bool
	AtomicRequests  bool // it may send atomic operations
	AtomicsBlocked  bool // of a port: none leave by it
}

// Express reads the PCI Express capability; false for a conventional function.
func (c Config) Express() (Express, bool, error) {
	at, err := c.capability(capIDExp)
	if err != nil || at == 0 {
		return Express{}, false, err
	}
	can, err1 := c.u16(at + expDevCap)
	ctl, err2 := c.u16(at + expDevCtl)
	for _, err := range []error{err1, err2} {
		if err != nil {
			return Express{}, false, err
		}
	}
	// A capability of version 1 ends before the second control register, and
	// may lie at the end.
	ctl2, _ := c.u16(at + expDevCtl2)
	const least = 128 // of all sizes
	return Express{
		PayloadCap:      least << (can & expDevCapPayload),
		Payload:         least << (ctl & expDevCtlPayload >> 5),
		ReadRequest:     least << (ctl & expDevCtlReadRQ >> 12),
		RelaxedOrdering: ctl&expDevCtlRelax != 0,
		AtomicRequests:  ctl2&expDevCtl2AtomicReq != 0,
		AtomicsBlocked:  ctl2&expDevCtl2Egress != 0,
	}, true, nil
}

// ATS reports whether a function has address translation services, and whether
// they are turned on.
func (c Config) ATS() (present, enabled bool, err error) {
	at, err := c.extended(extCapIDATS)
	if err != nil || at == 0 {
		return false, false, err
	}
	ctrl, err := c.u16(at + atsCtrl)
	return err == nil, ctrl&atsEnable != 0, err
}
