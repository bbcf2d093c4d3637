// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// translation is how an importer's addresses are made.
type translation int

const (
	TranslationUnknown translation = iota // the IOMMU's files could not be read
	Translated                            // an IOMMU makes IOVAs
	Untranslated                          // addresses are physical ones
)

// TranslationOf reads how the IOMMU treats a function. The answer is unknown if the
// IOMMU's files of the function cannot be read.
func (m *Machine) TranslationOf(a *pciaddr.Addr) (translation, string) {
	if a == nil {
		return Untranslated, "the importer is below no IOMMU"
	}
	if m.PassesDMA {
		return Untranslated, "the IOMMU passes all DMA through"
	}
	return OnceValues(m, "translation for "+a.String(), func() (translation, string) { return m.readTranslation(*a) })
}

func (m *Machine) readTranslation(a pciaddr.Addr) (translation, string) {
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
