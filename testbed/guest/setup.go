// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/testbed/initrd"
	"github.com/gpurdma/gpurdma/testbed/wire"
)

// setUp does everything between the first message and the first command.
func (g *guest) setUp(release string, s wire.Setup) error {
	g.progress("loading modules")
	if err := loadModules(initrd.Late); err != nil {
		return err
	}
	g.progress("mounting")
	if err := switchRoot(s); err != nil {
		return err
	}
	if err := hideProviders("/etc/libibverbs.d"); err != nil {
		return err
	}
	if err := moduleTree(release, s); err != nil {
		return err
	}
	if err := linkPCI("/sys/devices", wire.PCI, s.PCI); err != nil {
		return err
	}
	for link, to := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("sethostname: %w", err)
	}
	for file, value := range settings {
		err := os.WriteFile(file, []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	g.progress("setting up the network")
	return network(s.Interfaces, s.RDMA)
}

// settings differ from the kernel's defaults because the machine is emulated,
// possibly beside other work, or short-lived.
var settings = map[string]string{
	"/proc/sys/kernel/printk":                    "7",  // from here on the log has everything
	"/proc/sys/kernel/watchdog_thresh":           "30", // a busy host looks like a lockup
	"/proc/sys/net/ipv6/conf/default/accept_dad": "0",  // addresses, and so GIDs, are usable at once
	"/proc/sys/net/ipv6/conf/all/accept_dad":     "0",
	// A kernel that checks the use of the DMA interface reports one error only. All of
	// them would be thousands: each page that is mapped for two devices is one to it.
	"/sys/kernel/debug/dma-api/num_errors": "100",
}

// moduleTree shows the kernel's modules under /lib/modules, so that modprobe
// works, with our own modules in the place of the stock ones.
func moduleTree(release string, s wire.Setup) error {
	if s.ModuleDir == "" {
		return nil
	}
	target := "/lib/modules/" + release
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(s.ModuleDir, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s on %s: %w", s.ModuleDir, target, err)
	}
	for rel, file := range s.Replace {
		if err := unix.Mount(file, filepath.Join(target, rel), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding %s on %s: %w", file, rel, err)
		}
	}
	if s.Modprobe == "" {
		return nil
	}
	if err := os.MkdirAll("/run/modprobe.d", 0o755); err != nil {
		return err
	}
	return os.WriteFile("/run/modprobe.d/gpurdma.conf", []byte(s.Modprobe), 0o644)
}
