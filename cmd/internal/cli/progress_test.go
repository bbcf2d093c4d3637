// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"testing"
)

func TestProgressOnlyOnATerminal(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := NewProgress(f)
	p.Draw("work", 1, 2)
	p.Clear()
	if data, _ := os.ReadFile(f.Name()); len(data) != 0 {
		t.Errorf("%q was written to a file", data)
	}
	var b bytes.Buffer
	p.out, p.every = &b, 0
	p.Draw("work", 1, 2)
	p.Draw("work", 1, 0)
	p.Clear()
	p.Clear()
	if want := "\r\x1b[Kwork: 50%\r\x1b[K"; b.String() != want {
		t.Errorf("drew %q, want %q", b.String(), want)
	}
}
