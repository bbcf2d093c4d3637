// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/testbed/wire"
)

// mount is one line of a mount table.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
	optional               bool // the kernel may lack the file system
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil && !m.optional {
		return err
	}
	err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
	if err != nil && m.optional && (errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mounting %s on %s: %w", m.fstype, m.target, err)
	}
	return nil
}

func mountAll(ms []mount) error {
	for _, m := range ms {
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

func earlyMounts() error {
	return mountAll([]mount{
		{source: "proc", target: "/proc", fstype: "proc"},
		{source: "sysfs", target: "/sys", fstype: "sysfs"},
		{source: "dev", target: "/dev", fstype: "devtmpfs"},
	})
}

// plan9 are the options of both exports. Large messages and a cache keep the
// number of round trips low, which is what emulation is slow at; the cache is
// sound because nothing else writes while the machine runs.
const plan9 = "trans=virtio,version=9p2000.L,msize=512000"

// switchRoot makes the overlay of the host's root, or of the root that it has for the
// guest, the root directory.
func switchRoot(s wire.Setup) error {
	err := mountAll([]mount{
		{source: wire.TagRoot, target: "/lower", fstype: "9p", flags: unix.MS_RDONLY, data: plan9 + ",cache=loose"},
		{source: "upper", target: "/upper", fstype: "tmpfs", data: "mode=755,size=75%"},
	})
	if err != nil {
		return err
	}
	for _, d := range []string{"/upper/data", "/upper/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	const root = "/root"
	err = mountAll([]mount{
		{source: "overlay", target: root, fstype: "overlay", data: "lowerdir=/lower" + s.Root + ",upperdir=/upper/data,workdir=/upper/work"},
	})
	if err != nil {
		return err
	}
	var stash []stashed
	if s.Root == "" {
		if stash, err = stashExposed(root, s.Expose); err != nil {
			return err
		}
	}
	for _, name := range []string{"proc", "sys", "dev"} {
		target := filepath.Join(root, name)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("/"+name, target, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving /%s: %w", name, err)
		}
	}
	err = mountAll([]mount{
		{source: "run", target: root + "/run", fstype: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=755"},
		{source: "tmp", target: root + "/tmp", fstype: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=1777"},
		{source: "shm", target: root + "/dev/shm", fstype: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=1777"},
		{source: "devpts", target: root + "/dev/pts", fstype: "devpts", flags: unix.MS_NOSUID | unix.MS_NOEXEC, data: "mode=620,ptmxmode=666"},
		{source: "cgroup2", target: root + "/sys/fs/cgroup", fstype: "cgroup2", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{source: "debugfs", target: root + "/sys/kernel/debug", fstype: "debugfs", optional: true},
		{source: "tracefs", target: root + "/sys/kernel/tracing", fstype: "tracefs", optional: true},
		{source: "configfs", target: root + "/sys/kernel/config", fstype: "configfs", optional: true},
		{source: "bpf", target: root + "/sys/fs/bpf", fstype: "bpf", optional: true},
		{source: wire.TagResults, target: root + wire.Results, fstype: "9p", data: plan9 + ",cache=mmap"},
	})
	if err != nil {
		return err
	}
	if err := unstash(root, stash); err != nil {
		return err
	}
	if s.Root != "" {
		if err := overlayExposed(root, s.Expose); err != nil {
			return err
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return os.Chdir("/")
}

// fresh are the directories that get a file system of their own, which hides the
// host's files there.
var fresh = []string{"/run", "/tmp", "/dev/shm"}

// stashed is a path of the host kept aside while something is mounted over
// the directory it lies in.
type stashed struct {
	path, stash string
	dir         bool
}

// stashExposed binds the paths that would be hidden to places outside.
func stashExposed(root string, paths []string) ([]stashed, error) {
	var all []stashed
	for _, p := range paths {
		if !hidden(p) {
			continue
		}
		fi, err := os.Stat(filepath.Join(root, p))
		if err != nil {
			return nil, fmt.Errorf("path to expose: %w", err)
		}
		s := stashed{path: p, stash: fmt.Sprintf("/stash/%d", len(all)), dir: fi.IsDir()}
		if err := mountPoint(s.stash, s.dir); err != nil {
			return nil, err
		}
		if err := unix.Mount(filepath.Join(root, p), s.stash, "", unix.MS_BIND, ""); err != nil {
			return nil, fmt.Errorf("binding %s: %w", p, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// unstash moves the stashed paths to where they were.
func unstash(root string, all []stashed) error {
	for _, s := range all {
		to := filepath.Join(root, s.path)
		if err := mountPoint(to, s.dir); err != nil {
			return err
		}
		if err := unix.Mount(s.stash, to, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", s.path, err)
		}
	}
	return nil
}

// overlayExposed shows directories of the host in a root that is not the host's. They can
// be written to, as all in the guest, and what is written is dropped.
func overlayExposed(root string, paths []string) error {
	for i, p := range paths {
		fi, err := os.Stat(filepath.Join("/lower", p))
		if err != nil {
			return fmt.Errorf("path to expose: %w", err)
		}
		if !fi.IsDir() {
			return fmt.Errorf("path to expose: %s is not a directory", p)
		}
		upper := fmt.Sprintf("/upper/exposed-%d", i)
		for _, d := range []string{upper + "/data", upper + "/work"} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		m := mount{source: "overlay", target: filepath.Join(root, p), fstype: "overlay",
			data: fmt.Sprintf("lowerdir=/lower%s,upperdir=%[2]s/data,workdir=%[2]s/work", p, upper)}
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

func hidden(path string) bool {
	for _, d := range fresh {
		if strings.HasPrefix(path, d+"/") {
			return true
		}
	}
	return false
}

// mountPoint makes a directory, or an empty file to bind a file on.
func mountPoint(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
