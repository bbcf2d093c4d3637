// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The inventory gives attachments that only debugfs shows identities of their own, and the time
// of the inventory.
func TestInventoryOfDebugfs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dma_buf")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const text = "\nDma-buf Objects:\nsize    \tflags   \tmode    \tcount   \texp_name\tino     \tname\n" +
		"00004096\t00080002\t00080007\t00000003\tdrm\t00000007\t<none>\n" +
		"\tAttached Devices:\n\t0000:05:00.0\n\t0000:06:00.0\nTotal 2 devices attached\n\n" +
		"00008192\t00080002\t00080007\t00000002\tudmabuf\t00000008\t<none>\n" +
		"\tAttached Devices:\n\trxe0\nTotal 1 devices attached\n\n"
	if err := os.WriteFile(filepath.Join(dir, "bufinfo"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := &Tracer{cfg: Config{Debug: filepath.Dir(dir)}, join: testJoiner(10)}
	tr.join.conv.boot = time.Now().Add(-time.Hour)
	tr.kernelBufs(map[uint64]bool{}, func(uint64) bool { return true }, nil, 3, true)
	ids := map[uint64]bool{existedBit | 1: true, existedBit | 2: true, existedBit | 3: true}
	events := tr.join.take()
	for _, e := range events {
		if r := &e.Record; ids[r.ID] || !r.Existed || r.Importer.Device == "" || time.Since(e.Time) > time.Minute {
			t.Errorf("%+v", e)
		}
		ids[e.Record.ID] = true
	}
	if len(events) != 3 {
		t.Errorf("%d attachments", len(events))
	}
	// With a list that was cut, the reason does not claim that no descriptor leads to the buffer.
	for whole, want := range map[bool]string{true: "no descriptor leads to it", false: "could not be read to its end"} {
		tr.kernelBufs(map[uint64]bool{}, func(uint64) bool { return true }, nil, 6, whole)
		for _, e := range tr.join.take() {
			mustHave(t, strings.Join(e.Record.Incomplete, "; "), want)
		}
	}
}
