// SPDX-License-Identifier: Apache-2.0

package files

import (
	"path/filepath"
	"testing"
)

// BenchmarkReadFile reads an attribute of a device by the way that sysfs has to it, a link, and by its open directory.
func BenchmarkReadFile(b *testing.B) {
	root := b.TempDir()
	put(b, root, map[string]string{
		"sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/vendor": "0x10de\n",
		"sys/bus/pci/devices/0000:01:00.0":                        "-> ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
	})
	device := filepath.Join(root, "sys/bus/pci/devices/0000:01:00.0")
	run := func(b *testing.B, way string) {
		b.Run(way+"/name", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ReadFile(filepath.Join(device, "vendor")); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(way+"/directory", func(b *testing.B) {
			dir, err := OpenDir(device)
			if err != nil {
				b.Fatal(err)
			}
			defer dir.Close()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := dir.ReadFile("vendor"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run(b, "machine")
	for _, w := range ways {
		_, release := w.confine(b, root)
		run(b, w.name)
		release()
	}
}
