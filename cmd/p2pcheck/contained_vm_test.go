// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// asContained makes the command one in a container: with the capabilities of
// deploy/kubernetes, or with none; or only with a sysfs of its network namespace.
const asContained = "P2PCHECK_TEST_CONTAINED"

// contain hides what a container does not have. The process has mounts of its
// own.
func contain() error {
	runtime.LockOSThread()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if os.Getenv(asContained) == "network" {
		if err := unix.Mount("none", "/sys", "sysfs", 0, ""); err != nil {
			return err
		}
		return again()
	}
	for _, dir := range []string{"/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/firmware", "/dev"} {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	kept := []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYSLOG}
	if os.Getenv(asContained) == "none" {
		kept = nil
	}
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
		if slices.Contains(kept, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	if kept == nil {
		if err := errors.Join(unix.Setresgid(65534, 65534, 65534), unix.Setresuid(65534, 65534, 65534)); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return again() // the capabilities are those of the next program
}

// again runs this program anew, where it now is.
func again() error {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, asContained+"=") })
	return unix.Exec("/proc/self/exe", os.Args, env)
}

// contained compares with the command's result in a container, which may be unknown where the host's
// is known, and never another. With the manifest's capabilities the pairs are all known.
func contained(t *testing.T, whole result.Run, args []string) {
	// These judge the container itself.
	args = append(slices.Clone(args), "--skip", "CTR,K8S-PLUGIN,LIB,LIM,GPU-RENDER-PERM,NIC-DMABUF-PROBE,NIC-PROVIDER-LIB,NIC-UVERBS")
	// Debian's kernel lets only processes with CAP_SYSLOG read the log; the test sets other kernels to
	// do the same.
	const restrict = "/proc/sys/kernel/dmesg_restrict"
	was, err := os.ReadFile(restrict)
	if err == nil {
		err = os.WriteFile(restrict, []byte("1"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(restrict, was, 0); err != nil {
			t.Error(err)
		}
	}()
	for _, caps := range []string{"manifest", "none"} {
		env := []string{asContained + "=" + caps}
		d, status := ran(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}, env, args...)
		if len(d.Pairs) != len(whole.Pairs) || status == cli.ExitOK {
			t.Fatalf("%s: %d pairs, outside %d; status %d", caps, len(d.Pairs), len(whole.Pairs), status)
		}
		for i, p := range d.Pairs {
			if was := whole.Pairs[i].Outcome; p.Outcome != was && (caps == "manifest" || p.Outcome != "unknown") {
				t.Errorf("%s: %s -> %s: %s, outside %s", caps, p.GPU, p.NIC, p.Outcome, was)
			}
		}
		outside := result.Worst(whole.Checks)
		for id, result := range result.Worst(d.Checks) {
			if result == "pass" && outside[id] != "pass" && !strings.HasPrefix(id, "ENV-") {
				t.Errorf("%s: %s passes, outside it is %q", caps, id, outside[id])
			}
			// Of a log whose beginning is overwritten nothing is known outside, either.
			cut := id == "KRN-KMSG" && outside[id] == "unknown"
			if (id == "KRN-KMSG" || id == "ENV-CFGSPACE") && (result == "unknown") != (caps == "none" || cut) {
				t.Errorf("%s: %s is %s", caps, id, result)
			}
		}
	}
}
