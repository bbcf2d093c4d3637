// SPDX-License-Identifier: Apache-2.0

package testenv

import "testing"

// As Linux 6.12 prints them with one processor and with two.
func TestControlQueues(t *testing.T) {
	const one = ` 41:          0  PCI-MSIX-0000:00:01.0   0-edge      virtio0-config
 42:         17  PCI-MSIX-0000:00:01.0   1-edge      virtio0-control
 43:          0  PCI-MSIX-0000:00:01.0   2-edge      virtio0-cursor
`
	const two = ` 29:          0          3  PCI-MSIX-0000:00:04.0   1-edge      virtio3-requests
 31:          0          1  PCI-MSIX-0000:00:01.0   1-edge      virtio12-control
 33:          0          2  PCI-MSIX-0000:00:05.0   1-edge      virtio4-control-i/o
`
	for text, want := range map[string]string{
		one: " 42:         17  PCI-MSIX-0000:00:01.0   1-edge      virtio0-control",
		two: " 31:          0          1  PCI-MSIX-0000:00:01.0   1-edge      virtio12-control",
	} {
		if got := controlQueues(text); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
