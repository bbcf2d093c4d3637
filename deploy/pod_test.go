// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pod is what a container's runtime makes of a manifest, as far as a program can
// tell: a root of its own, mounts, a user and capabilities.
type pod struct {
	Root   string
	Mounts []mount
	User   int
	Caps   []uintptr
	Args   []string
	Env    []string
}

type mount struct {
	Source, Target string // Source "" is an empty place
	ReadOnly       bool
}

// asPod holds a pod for a process that becomes its program.
const asPod = "DEPLOY_TEST_POD"

func TestMain(m *testing.M) {
	if text := os.Getenv(asPod); text != "" {
		var p pod
		err := json.Unmarshal([]byte(text), &p)
		if err == nil {
			err = p.become()
		}
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(125)
	}
	status := m.Run()
	if err := os.RemoveAll(staticDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// become turns this process, which has mounts of its own, into the program. It
// returns only if it cannot.
func (p *pod) become() error {
	runtime.LockOSThread()
	for _, m := range append([]mount{{p.Root, "/", true}}, p.Mounts...) {
		at := filepath.Join(p.Root, m.Target)
		var err error
		if m.Source == "" {
			err = unix.Mount("none", at, "tmpfs", 0, "mode=755")
		} else {
			err = unix.Mount(m.Source, at, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Source, at, err)
		}
		if !m.ReadOnly {
			continue
		}
		if err := unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("%s read-only: %w", at, err)
		}
	}
	if err := unix.Chroot(p.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := p.limit(); err != nil {
		return err
	}
	return unix.Exec("/usr/bin/p2pcheck", append([]string{"p2pcheck"}, p.Args...), p.Env)
}

// limit leaves the capabilities that were asked for, and no way to others.
func (p *pod) limit() error {
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
		if slices.Contains(p.Caps, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if p.User != 0 {
		if err := unix.Setresgid(p.User, p.User, p.User); err != nil {
			return fmt.Errorf("group: %w", err)
		}
		if err := unix.Setresuid(p.User, p.User, p.User); err != nil {
			return fmt.Errorf("user: %w", err)
		}
	}
	var sets [2]unix.CapUserData
	for _, c := range p.Caps {
		sets[c/32].Permitted |= 1 << (c % 32)
		sets[c/32].Effective |= 1 << (c % 32)
	}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// command is the pod's program, not yet started. Its places in the root are made.
// A user namespace makes do without root, and has no capability that counts.
func (p *pod) command(t *testing.T, userNamespace bool) *exec.Cmd {
	t.Helper()
	for _, m := range p.Mounts {
		if err := os.MkdirAll(filepath.Join(p.Root, m.Target), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	q := *p
	if userNamespace {
		q.User = 0 // there is no other there, and it can do nothing
	}
	text, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asPod+"="+string(text))
	cmd.SysProcAttr = attributes(userNamespace)
	return cmd
}

// attributes are of a process with private mounts, which Go makes of those that it
// unshares. In a user namespace this user is root.
func attributes(userNamespace bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if userNamespace {
		a.Cloneflags = unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}
