// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// A capability that package pci reads is one that config writes: another one would
// be absent of every machine that lspci printed.
func TestEveryCapabilityThatIsRead(t *testing.T) {
	known := []string{"capIDExp", "extCapIDACS", "extCapIDATS", "extCapIDReBAR"}
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/pci/abi_pci_regs.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && (strings.HasPrefix(name.Name, "capID") || strings.HasPrefix(name.Name, "extCapID")) && !slices.Contains(found, name.Name) {
			found = append(found, name.Name)
		}
		return true
	})
	slices.Sort(found)
	if !slices.Equal(found, known) {
		t.Errorf("package pci has %q; config writes %q", found, known)
	}
}

// registers are what package pci reads of a configuration space, in one line.
func registers(t *testing.T, root string, a pciaddr.Addr) string {
	t.Helper()
	c, err := pci.ReadConfig(sysfs.New(root+"/sys"), a)
	if err != nil {
		return err.Error()
	}
	port, err1 := c.Port()
	express, is, err2 := c.Express()
	acs, err3 := c.ACS()
	ats, on, err4 := c.ATS()
	text := fmt.Sprint(port, err1, express, is, err2, acs, err3, ats, on, err4)
	for bar := range standardBARs {
		size, err := c.LargestSize(bar)
		text += fmt.Sprint(" ", size, err)
	}
	return text
}

// random is a configuration space of a PCI Express function by chance.
func random(r *rand.Rand, kind int) []byte {
	c := make([]byte, extendedSize)
	le := binary.LittleEndian
	le.PutUint16(c[0:], 0x10de)
	le.PutUint16(c[2:], 0x2330)
	c[6] = statusCapList
	c[0x0b], c[0x0a] = 3, 2
	if kind == kindRootPort || kind == kindUpstream || kind == kindDownstream {
		c[0x0b], c[0x0a], c[0x0e] = 6, 4, 1
		c[0x19], c[0x1a] = 1, 1
	}
	c[0x34] = 0x60
	le.PutUint16(c[0x60:], capExpress)
	le.PutUint16(c[0x62:], uint16(1+r.IntN(2)|kind<<4))
	le.PutUint32(c[0x64:], r.Uint32()&^7|uint32(r.IntN(6)))
	le.PutUint16(c[0x68:], uint16(r.IntN(6)<<12|r.IntN(6)<<5|r.IntN(2)<<4))
	le.PutUint32(c[0x6c:], uint32(1+r.IntN(6)|16<<4))
	le.PutUint16(c[0x72:], uint16(1+r.IntN(6)|8<<4))
	if c[0x62]&0xf > 1 {
		le.PutUint16(c[0x88:], uint16(r.IntN(4)<<6))
	}
	at, last := 0x100, 0
	add := func(id uint32, size int, put func(c []byte)) {
		if last > 0 {
			le.PutUint32(c[last:], le.Uint32(c[last:])|uint32(at)<<20)
		}
		le.PutUint32(c[at:], id|1<<16)
		put(c[at:])
		last, at = at, at+size
	}
	add(0x0b, 0x20, func(c []byte) { c[6] = 1 })
	if r.IntN(3) > 0 {
		add(extACS, 8, func(c []byte) {
			le.PutUint16(c[4:], uint16(r.IntN(0x80)))
			le.PutUint16(c[6:], uint16(r.IntN(0x80)))
		})
	}
	if r.IntN(3) > 0 {
		add(extATS, 8, func(c []byte) { le.PutUint16(c[6:], uint16(r.IntN(2)<<15|r.IntN(0x20))) })
	}
	if r.IntN(2) > 0 {
		n := 1 + r.IntN(4)
		add(extREBAR, 4+8*n, func(c []byte) {
			for i := range n {
				le.PutUint32(c[4+8*i:], uint32(1+r.IntN(1<<28-1))<<4)
				c[8+8*i] = uint8(i)
			}
			c[8] |= uint8(n) << 5
		})
	}
	return c
}

// hidden are bits that lspci prints only of some types: the others are as if they
// were 0.
func hidden(c []byte, kind int) {
	switch kind {
	case kindUpstream, kindDownstream:
		c[0x88] &^= devCtl2Requests
	case kindEndpoint, kindLegacy, kindIntegrated:
		c[0x88] &^= devCtl2Blocked
	}
}

// What lspci itself prints of a configuration space leads back to the same
// registers.
func TestAgainstLspci(t *testing.T) {
	if _, err := exec.LookPath("lspci"); err != nil {
		t.Skip("lspci is not installed: its format is compared with fixtures only")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	kindsToTry := []int{kindEndpoint, kindLegacy, kindRootPort, kindUpstream, kindDownstream, kindIntegrated}
	var dump strings.Builder
	spaces := map[pciaddr.Addr][]byte{}
	for n := range 120 {
		kind := kindsToTry[n%len(kindsToTry)]
		a := pciaddr.Addr{Bus: uint8(n >> 5), Device: uint8(n & 0x1f)}
		c := random(r, kind)
		fmt.Fprintf(&dump, "%v x\n", a)
		for at := 0; at < len(c); at += 16 {
			fmt.Fprintf(&dump, "%02x: % x\n", at, c[at:at+16])
		}
		dump.WriteString("\n")
		hidden(c, kind)
		spaces[a] = c
	}
	file := filepath.Join(t.TempDir(), "dump")
	if err := os.WriteFile(file, []byte(dump.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), "lspci", "-F", file, "-vvvnn", "-D").Output()
	if err != nil {
		t.Fatal(err)
	}
	mine := write(t, machineOf(t, string(text), ""))
	its := testenv.TreeDir(t)
	for a, c := range spaces {
		testenv.WriteFile(t, filepath.Join(its, "sys/bus/pci/devices", a.String(), "config"), string(c))
		if got, want := registers(t, mine, a), registers(t, its, a); got != want {
			t.Errorf("%v:\n%s, want\n%s", a, got, want)
		}
	}
}
