// SPDX-License-Identifier: Apache-2.0

package pci

import "strings"

// ACS is a function's Access Control Services capability.
type ACS struct {
	Present bool
	Cap     ACSBits // the function's capabilities
	Ctrl    ACSBits // those that are turned on
}

// redirecting are the bits that send peer-to-peer requests to the root, by
// the kernel's count (drivers/pci/p2pdma.c, pci_bridge_has_acs_redir). Source
// validation, translation blocking, upstream forwarding and direct translated
// do not.
const redirecting = ACSRequestRedirect | ACSCompletionRedirect | ACSEgressControl

// Redirects is the part of Ctrl that keeps peer-to-peer traffic from taking the
// short way; 0 if none does.
func (a ACS) Redirects() ACSBits {
	if !a.Present {
		return 0
	}
	return a.Ctrl & redirecting
}

// ACS reads the function's capability.
func (c Config) ACS() (ACS, error) {
	at, err := c.extended(extCapIDACS)
	if err != nil || at == 0 {
		return ACS{}, err
	}
	can, err := c.u16(at + acsCap)
	if err != nil {
		return ACS{}, err
	}
	ctrl, err := c.u16(at + acsCtrl)
	if err != nil {
		return ACS{}, err
	}
	return ACS{Present: true, Cap: ACSBits(can), Ctrl: ACSBits(ctrl)}, nil
}

var acsNames = []struct {
	bit  ACSBits
	name string
}{
	{ACSSourceValidation, "source validation"},
	{ACSTranslationBlock, "translation blocking"},
	{ACSRequestRedirect, "request redirect"},
	{ACSCompletionRedirect, "completion redirect"},
	{ACSUpstreamForward, "upstream forwarding"},
	{ACSEgressControl, "egress control"},
	{ACSDirectTranslated, "direct translated"},
}

// String names the bits: "request redirect, completion redirect".
func (b ACSBits) String() string {
	var on []string
	for _, n := range acsNames {
		if b&n.bit != 0 {
			on = append(on, n.name)
		}
	}
	if len(on) == 0 {
		return "none"
	}
	return strings.Join(on, ", ")
}
