// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Translation says whether an IOMMU translates the addresses of a device.
type Translation int

// The answers of Machine.TranslationOf.
const (
	TranslationUnknown Translation = iota // the IOMMU's files could not be read, or have an unknown mode
	Translated                            // an IOMMU translates: the addresses are IOVAs
	Untranslated                          // the addresses are physical: there is no IOMMU, or it passes DMA through
)

// TranslationOf says whether an IOMMU translates the function's addresses, and
// why; nil stands for an importer that is no PCI function. The answer is
// TranslationUnknown if the IOMMU's files of the function cannot be read.
func (m *Machine) TranslationOf(a *pciaddr.Addr) (Translation, string) {
	if a == nil {
		return Untranslated, "the importer is below no IOMMU"
	}
	if m.PassesDMA {
		return Untranslated, "the IOMMU passes all DMA through"
	}
	return OnceValues(m, "translation for "+a.String(), func() (Translation, string) { return m.readTranslation(*a) })
}

func (m *Machine) readTranslation(a pciaddr.Addr) (Translation, string) {
	kind, err := pci.IOMMUType(m.Sys, a)
	if err != nil {
		return TranslationUnknown, err.Error()
	}
	switch kind {
	case "DMA", "DMA-FQ":
		return Translated, fmt.Sprintf("the IOMMU translates for %v (%s)", a, kind)
	case "identity":
		return Untranslated, fmt.Sprintf("the IOMMU passes %v through", a)
	case "":
		return Untranslated, fmt.Sprintf("%v is below no IOMMU", a)
	}
	return TranslationUnknown, fmt.Sprintf("the IOMMU domain of %v is %q", a, kind)
}
