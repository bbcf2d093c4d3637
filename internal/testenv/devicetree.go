// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// DeviceTree is a sysfs with one RoCE device, roce0.
func DeviceTree(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"class/infiniband/roce0/node_guid":                       "0011:22ff:fe33:4455",
		"class/infiniband/roce0/node_type":                       "1: CA",
		"class/infiniband/roce0/ports/1/state":                   "4: ACTIVE",
		"class/infiniband/roce0/ports/1/link_layer":              "Ethernet",
		"class/infiniband/roce0/ports/1/gids/0":                  "fe80:0000:0000:0000:0011:22ff:fe33:4455",
		"class/infiniband/roce0/ports/1/gids/1":                  "0000:0000:0000:0000:0000:ffff:0a09:0001",
		"class/infiniband/roce0/ports/1/gids/2":                  "0000:0000:0000:0000:0000:0000:0000:0000",
		"class/infiniband/roce0/ports/1/gid_attrs/types/0":       "IB/RoCE v1",
		"class/infiniband/roce0/ports/1/gid_attrs/types/1":       "RoCE v2",
		"class/infiniband/roce0/ports/1/gid_attrs/ndevs/0":       "eth7",
		"class/infiniband/roce0/ports/1/gid_attrs/ndevs/1":       "eth7",
		"class/infiniband_verbs/uverbs3/ibdev":                   "roce0",
		"class/net/eth7/mtu":                                     "1500",
		"devices/pci0000:00/0000:00:05.0/infiniband/other/dummy": "",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
