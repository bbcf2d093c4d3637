// SPDX-License-Identifier: Apache-2.0

package link

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/human"
)

// Of one NIC there is the line that there was, of several a table.
func TestWriteRails(t *testing.T) {
	first := Way{text: "port 1 of mlx5_0, 10.0.0.1 to 10.0.0.2"}
	one := Rail{NIC: "mlx5_0", Port: 1, GID: "10.0.0.1", Peer: "10.0.0.2", Up: true, Rate: 12e9, Bytes: 3 << 20}
	var b strings.Builder
	if err := WriteRails(&b, []Rail{one}, first); err != nil || b.String() != "over:    port 1 of mlx5_0, 10.0.0.1 to 10.0.0.2\n" {
		t.Errorf("%v, %q", err, b.String())
	}
	b.Reset()
	two := Rail{NIC: "mlx5_1", Port: 2, GID: "10.1.0.1", Peer: "10.1.0.2", Lost: 3, Failed: 4, Error: "a cable is cut"}
	if err := WriteRails(human.Wide{Writer: &b}, []Rail{one, two}, first); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for l := range strings.Lines(b.String()) {
		rows = append(rows, strings.Fields(l))
	}
	want := []string{"1", "mlx5_1", "2", "10.1.0.1", "10.1.0.2", "4", "3", "down:", "a", "cable", "is", "cut"}
	got := slices.DeleteFunc(slices.Clone(rows[len(rows)-1]), func(s string) bool { return s == "0" || s == "MB/s" || s == "-" })
	if !slices.Equal(got, want) || !strings.Contains(b.String(), "12.00 GB/s") || !strings.Contains(b.String(), "3.0 MiB") {
		t.Errorf("%q in\n%s", got, b.String())
	}
	b.Reset()
	if err := WriteRails(&b, []Rail{one, two}, first); err != nil || !strings.Contains(b.String(), "down: a cable is cut\nnot shown: GID ") {
		t.Errorf("a narrow table: %v\n%s", err, b.String())
	}
}
