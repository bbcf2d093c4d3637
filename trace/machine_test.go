// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/machine"
)

// A tracer says what is wrong with its configuration.
func TestOpenRefuses(t *testing.T) {
	if _, err := Open(Config{RingSize: 3000}); err == nil || !strings.Contains(err.Error(), "power of two") {
		t.Errorf("a ring of 3000 bytes: %v", err)
	}
}

// A device that has another one's addresses is named by its own name.
func TestBARChangesHands(t *testing.T) { synctest.Test(t, barChangesHands) }

func barChangesHands(t *testing.T) {
	sys := t.TempDir()
	devices := filepath.Join(sys, "bus/pci/devices")
	plug := func(name string) {
		dir := filepath.Join(devices, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"resource": "0x00000000c0000000 0x00000000cfffffff 0x0000000000140204\n" + strings.Repeat("0x0 0x0 0x0\n", 6),
			"class":    "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const first, second = "0000:03:00.0", "0000:04:00.0"
	plug(first)
	j := testJoiner(10)
	j.conv.machine = machine.New(sys, sys)
	time.Sleep(time.Minute)
	var c clock
	named := func(id uint64) string {
		t.Helper()
		j.handle(made(&c, id, translated, physical, func(w *abi.Record) { w.Resources[0].Phys = 0xc000_1000 }))
		p := j.live[id].rec.Placement
		if p.Memory != placement.PeerToPeer || len(p.Places) != 1 {
			t.Fatalf("%v", p)
		}
		return p.Places[0].Device
	}
	if got := named(1); got != first {
		t.Errorf("%s", got)
	}
	if err := os.RemoveAll(filepath.Join(devices, first)); err != nil {
		t.Fatal(err)
	}
	plug(second)
	time.Sleep(time.Minute)
	if got := named(2); got != second {
		t.Errorf("%s", got)
	}
}
