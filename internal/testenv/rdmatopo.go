// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// RDMATopoDump has a machine as rdma_topo of rdma-core dumps it.
func RDMATopoDump(t testing.TB, root string) []map[string]any {
	t.Helper()
	var out []map[string]any
	links, err := filepath.Glob(root + "/sys/bus/pci/devices/*")
	if err != nil {
		t.Fatal(err)
	}
	attr := func(link, name string) string {
		text, err := os.ReadFile(filepath.Join(link, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(strings.TrimPrefix(string(text), "0x"))
	}
	for _, link := range links {
		class := strings.ToUpper(attr(link, "class"))
		if class == "060000" || class == "088000" {
			continue // rdma_topo leaves host bridges out
		}
		real, err := filepath.EvalSymlinks(link)
		if err != nil {
			t.Fatal(err)
		}
		config, err := os.ReadFile(filepath.Join(link, "config"))
		if err != nil {
			t.Fatal(err)
		}
		d := map[string]any{
			"realpath": strings.TrimPrefix(real, root),
			"config":   Deflated(config),
			"modalias": fmt.Sprintf("pci:v0000%sd0000%ssv00000000sd00000000bc%ssc%si%s", strings.ToUpper(attr(link, "vendor")), strings.ToUpper(attr(link, "device")), class[:2], class[2:4], class[4:]),
		}
		d["iommu_group"], d["vpd"] = nil, nil
		if group, err := os.Readlink(filepath.Join(link, "iommu_group")); err == nil {
			d["iommu_group"], _ = strconv.Atoi(filepath.Base(group))
		}
		if vpd, err := os.ReadFile(filepath.Join(link, "vpd")); err == nil {
			d["vpd"] = Deflated(vpd)
		}
		if nics, err := os.ReadDir(filepath.Join(link, "infiniband")); err == nil {
			d["subsystems"] = map[string][]string{"infiniband": {nics[0].Name()}}
		}
		out = append(out, d)
	}
	return out
}

// Deflated is a file as a dump has it.
func Deflated(data []byte) string {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(data)
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}
