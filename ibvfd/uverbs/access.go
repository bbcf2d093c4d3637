// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"fmt"
	"strings"
)

var accessNames = []struct {
	bit  uint32
	name string
}{
	{AccessLocalWrite, "local-write"},
	{AccessRemoteWrite, "remote-write"},
	{AccessRemoteRead, "remote-read"},
	{AccessRemoteAtomic, "remote-atomic"},
	{AccessMWBind, "mw-bind"},
	{AccessZeroBased, "zero-based"},
	{AccessOnDemand, "on-demand"},
	{AccessHugeTLB, "hugetlb"},
	{AccessFlushGlobal, "flush-global"},
	{AccessFlushPersistent, "flush-persistent"},
	{AccessRelaxedOrdering, "relaxed-ordering"},
}

// AccessNames lists the access flags in bits: "local-write|remote-read", "none" for 0.
func AccessNames(bits uint32) string {
	if bits == 0 {
		return "none"
	}
	var names []string
	for _, n := range accessNames {
		if bits&n.bit != 0 {
			names = append(names, n.name)
			bits &^= n.bit
		}
	}
	if bits != 0 {
		names = append(names, fmt.Sprintf("%#x", bits))
	}
	return strings.Join(names, "|")
}
