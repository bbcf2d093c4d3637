// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"path/filepath"
	"testing"

	"github.com/gpurdma/gpurdma/internal/abicheck"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The test drivers' interfaces are what their headers say.
func TestDriverHeaders(t *testing.T) {
	header := func(module string) abicheck.Headers {
		path, err := filepath.Abs(filepath.Join("../../kernel", module, module+".h"))
		if err != nil {
			t.Fatal(err)
		}
		return abicheck.Headers{Files: []string{path}, Package: "linux-libc-dev"}
	}
	header("testexporter").Compare(t, []abicheck.Struct{
		{C: "testexporter_create", Go: testenv.ExporterCreate{}, Fields: []string{"mode", "pages", "device", "bar", "reserved"}},
	}, []abicheck.Number{
		{C: "TESTEXPORTER_CREATE", Go: uint64(testenv.ExporterCreateIoctl)},
		{C: "TESTEXPORTER_MOVE", Go: uint64(testenv.ExporterMoveIoctl)},
		{C: "TESTEXPORTER_NESTED", Go: uint64(testenv.Nested)},
		{C: "TESTEXPORTER_OK", Go: uint64(testenv.PlainList)},
		{C: "TESTEXPORTER_NO_PAGES", Go: uint64(testenv.NoPages)},
		{C: "TESTEXPORTER_BAR", Go: uint64(testenv.InBAR)},
		{C: "TESTEXPORTER_HALVES", Go: uint64(testenv.Halves)},
		{C: "TESTEXPORTER_HALVES_DMA", Go: uint64(testenv.HalvesByDMA)},
		{C: "TESTEXPORTER_P2PMEM", Go: uint64(testenv.P2PMem)},
		{C: "TESTEXPORTER_HALVES_P2PMEM", Go: uint64(testenv.HalvesP2PMem)},
	})
	header("testimporter").Compare(t, []abicheck.Struct{
		{C: "testimporter_attach", Go: testenv.ImporterAttach{}, Fields: []string{"device", "fd", "kind", "flags", "id", "peer2peer", "reserved"}},
		{C: "testimporter_segment", Go: testenv.ImporterSegment{}, Fields: []string{"addr", "length", "phys", "flags", "reserved"}},
		{C: "testimporter_map", Go: testenv.ImporterMap{}, Fields: []string{"id", "direction", "segments", "max", "count"}},
		{C: "testimporter_transfer", Go: testenv.ImporterTransfer{}, Fields: []string{"id", "write", "offset", "length", "data"}},
		{C: "testimporter_distance", Go: testenv.ImporterDistance{}, Fields: []string{"provider", "client", "distance", "reserved"}},
	}, []abicheck.Number{
		{C: "TESTIMPORTER_PEER2PEER", Go: testenv.ImporterPeer2Peer},
		{C: "TESTIMPORTER_32BIT", Go: testenv.Importer32Bit},
		{C: "TESTIMPORTER_STATIC", Go: uint64(testenv.StaticImporter)},
		{C: "TESTIMPORTER_DYNAMIC", Go: uint64(testenv.DynamicImporter)},
	})
}
