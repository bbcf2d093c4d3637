// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/layout"
)

// QEMU is the emulator of the guests' processor: what GPURDMA_QEMU names, else the one in the build directory,
// else the installed one.
func QEMU(t layout.Tree) string {
	if q := os.Getenv("GPURDMA_QEMU"); q != "" {
		return q
	}
	if _, err := os.Stat(t.QEMU()); err == nil {
		return t.QEMU()
	}
	return t.Arch.Emulator
}

// probeLimit is how long a kernel may take to say a word under KVM. It takes
// a fraction of a second where KVM works; where /dev/kvm opens and the
// virtual processor then does not run, it takes forever.
const probeLimit = 5 * time.Second

// Accel returns "kvm" when a kernel was seen to start under it, else "tcg", as for all
// that have another processor than this machine.
// GPURDMA_ACCEL overrides the probe. The answer is cached until the host
// boots again.
func Accel(ctx context.Context, t layout.Tree, k kernel.Kernel) (string, error) {
	if a := os.Getenv("GPURDMA_ACCEL"); a != "" {
		if a != "kvm" && a != "tcg" {
			return "", fmt.Errorf("GPURDMA_ACCEL=%s: kvm or tcg", a)
		}
		return a, nil
	}
	if !k.Arch.Host() {
		return "tcg", nil
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg", nil
	}
	f.Close()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(boot, k.Release...))
	cache := filepath.Join(t.Cache(), "accel-"+hex.EncodeToString(sum[:8]))
	if b, err := os.ReadFile(cache); err == nil {
		if a := strings.TrimSpace(string(b)); a == "kvm" || a == "tcg" {
			return a, nil
		}
	}
	accel := "tcg"
	if kvmStarts(ctx, QEMU(t), k) {
		accel = "kvm"
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return accel, writeFile(cache, accel+"\n")
}

// kvmStarts boots a kernel, without a root, until its first line.
func kvmStarts(ctx context.Context, qemu string, k kernel.Kernel) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35", "-accel", "kvm", "-cpu", "host", "-smp", "2", "-m", "256M",
		"-serial", "stdio", "-kernel", k.Boot(), "-append", "console=ttyS0 panic=-1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false
	}
	if err := cmd.Start(); err != nil {
		return false
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var seen strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := out.Read(buf)
		seen.Write(buf[:n])
		// The banner is printed early; a panic for want of a root, late:
		// by then timers and the second processor have worked.
		if strings.Contains(seen.String(), "Kernel panic - not syncing: VFS") {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// writeFile writes a small file so that it is never seen half-written.
func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "stage-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.WriteString(f, text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
