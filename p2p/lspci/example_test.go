// SPDX-License-Identifier: Apache-2.0

package lspci_test

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/lspci"
)

// Without root lspci prints the first 64 bytes of the configuration space.
func ExampleParse() {
	text, err := lspci.Parse(strings.NewReader(`0000:00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2]
	Status: Cap+ 66MHz- UDF- FastB2B- ParErr- DEVSEL=fast >TAbort- <TAbort- <MAbort- >SERR- <PERR- INTx-
	Capabilities: <access denied>

`))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := text.Machine(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	dir := "sys/devices/pci0000:00/0000:00:00.0/"
	fmt.Printf("vendor: %s", m.Files[dir+"vendor"].Data)
	fmt.Printf("configuration space: %d bytes\n", len(m.Files[dir+"config"].Data))
	fmt.Println("power state unread:", m.Files[dir+"power/runtime_status"].Unreadable)
	fmt.Println(m.Notes[len(m.Notes)-1])
	// Output:
	// vendor: 0x8086
	// configuration space: 64 bytes
	// power state unread: true
	// 1 function has “<access denied>”: ACS and the rest of the registers are unread. Run lspci as root: `sudo lspci -vvvnn -D`.
}
