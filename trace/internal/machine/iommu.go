// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Translation says whether an IOMMU translates a device's addresses. The
// kernel's own objects are asked first, then sysfs.
func (t *Table) Translation(r *abi.Record) placement.Translation {
	if r.Have&abi.HaveAttach == 0 || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return placement.TranslationUnknown
	}
	switch {
	case r.Have&(abi.HaveIOMMU|abi.HaveOtherDMA) == 0:
		return placement.Untranslated
	case r.Have&abi.HaveIOMMU != 0 && r.Have&abi.HaveIOMMUType != 0 && r.Dev.IOMMUType&abi.IOMMUPaging != 0:
		return placement.Translated // up to 6.12, by operations of its own
	case r.Have&abi.HaveOtherDMA != 0:
		return placement.TranslationUnknown
	case r.Have&abi.HaveIOMMUType != 0 && r.Dev.IOMMUType&abi.IOMMUPassThrough != 0:
		return placement.Untranslated
	}
	mode, err := sysfs.New(t.sys).ReadString(filepath.Join("bus", abi.Text(r.Dev.Bus[:]), "devices", abi.Text(r.Dev.Name[:]), "iommu_group/type"))
	switch {
	case err != nil:
		return placement.TranslationUnknown
	case mode == "identity":
		return placement.Untranslated
	case strings.HasPrefix(mode, "DMA"):
		return placement.Translated
	}
	return placement.TranslationUnknown
}
