// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/drivers"
)

// rdmaDrivers are the drivers of PCI functions for which the kernel also has an RDMA driver:
// drivers/infiniband/hw, by the ID tables and auxiliary devices there.
var rdmaDrivers = map[string]bool{
	"mlx5_core": true, // mlx5
	"mlx4_core": true, // mlx4
	"efa":       true, // efa
	"bnxt_en":   true, // bnxt_re
	"ice":       true, // irdma
	"i40e":      true, // irdma
	"mana":      true, // mana
	"ionic":     true, // ionic
	"cxgb4":     true, // cxgb4
	"hns3":      true, // hns
	"qede":      true, // qedr
	"erdma":     true, // erdma
	"hfi1":      true, // hfi1
	"ib_mthca":  true, // mthca
}

const (
	vendorMellanox = "15b3"
	vendorAmazon   = "1d0f"
)

// rdma reports a function that can have an RDMA device. Where its driver is not in
// the text, these are the cards whose functions all have one.
func (f *function) rdma() bool {
	driver := f.boundTo()
	if driver != drivers.UnknownDriver {
		return rdmaDrivers[driver] && network(f.class)
	}
	return f.class == classInfiniBand || f.vendor == vendorMellanox && network(f.class) ||
		f.vendor == vendorAmazon && strings.HasPrefix(f.device, "efa")
}

// rdmaName is the name by which the RDMA device of a function goes, which lspci
// does not print.
func (f *function) rdmaName() string { return "rdma-" + f.addr.String() }

// boundTo is the driver: "" if none is bound, [drivers.UnknownDriver] if the text does
// not say. -v and -k print it.
func (f *function) boundTo() string {
	switch {
	case f.driver != "" && !f.unknown:
		return f.driver
	case f.whole() && (f.registers || f.brief):
		return ""
	}
	return drivers.UnknownDriver
}
