// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// booted is a root file system in which systemd is the first process.
type booted struct {
	root string
	pid  string // of systemd
}

// boot starts systemd in a root, in namespaces and a control group of their own, which end with the test.
func boot(t *testing.T, root string) booted {
	t.Helper()
	group := controlGroup(t)
	script := `echo $$ >"$0/cgroup.procs" && exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child ./boot.sh "$1"`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, group, root)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and --kill-child ends systemd, and with it all others
		<-ended
	})
	b := booted{root: root}
	for {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("systemd did not start: %v: %s", err, &said)
		case <-t.Context().Done():
			t.Fatal("systemd did not start: ", &said)
		case <-time.After(50 * time.Millisecond):
		}
		if b.pid == "" {
			out, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task/" + strconv.Itoa(cmd.Process.Pid) + "/children")
			if err != nil || len(strings.Fields(string(out))) != 1 {
				continue
			}
			b.pid = strings.Fields(string(out))[0]
		}
		if _, err := os.Stat("/proc/" + b.pid + "/root/run/systemd/private"); err != nil {
			continue
		}
		if out := try(t, b.command(t, "systemctl", "is-system-running")); slices.Contains([]string{"running\n", "degraded\n"}, out.out) {
			return b
		}
	}
}

// controlGroup is a group of cgroup2 for the test alone.
func controlGroup(t *testing.T) string {
	t.Helper()
	top := "/sys/fs/cgroup"
	if _, err := os.Stat(top + "/cgroup.procs"); err != nil {
		top += "/unified"
	}
	group, err := os.MkdirTemp(top, "gpurdma-test-")
	if err != nil {
		t.Skip("no control group can be made here: ", err)
	}
	t.Cleanup(func() {
		// Processes of a namespace that has ended leave their groups a moment later.
		for range 200 {
			if err = removeGroups(group); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error(err)
	})
	return group
}

// removeGroups removes a control group and those below it.
func removeGroups(group string) error {
	var all []string
	err := filepath.WalkDir(group, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, name)
		}
		return err
	})
	for _, name := range slices.Backward(all) {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// command is one that runs there beside systemd.
func (b booted) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nsenter", append([]string{"-t", b.pid, "-m", "-p", "-n", "-u", "-i", "-C", "-r", "-w", "--"}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	return cmd
}

// journal waits until the journal of the service has some text: the last lines of a program come there a moment
// after its end.
func (b booted) journal(t *testing.T, text string) {
	t.Helper()
	var out string
	for range 100 {
		if out = must(t, b.command(t, "journalctl", "--no-pager", "-o", "cat", "-u", "p2pcheck.service")); strings.Contains(out, text) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("the journal does not have %q: %s", text, out)
}

// timer enables the timer at a time that it would have elapsed: the service starts, and keeps a run.
func (b booted) timer(t *testing.T) {
	t.Helper()
	must(t, b.command(t, "sh", "-c", `rm /var/lib/p2pcheck/last.json && mkdir -p /run/systemd/system/p2pcheck.timer.d &&
		printf '[Timer]\nOnBootSec=\nOnBootSec=1s\nOnUnitActiveSec=1h\n' >/run/systemd/system/p2pcheck.timer.d/test.conf && systemctl daemon-reload`))
	must(t, b.command(t, "systemctl", "enable", "--now", "p2pcheck.timer"))
	for range 600 {
		if r := try(t, b.command(t, "test", "-s", "/var/lib/p2pcheck/last.json")); r.status == 0 {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Error("the timer starts nothing: ", must(t, b.command(t, "systemctl", "list-timers", "--no-pager")))
}

// readsConfigurationSpace starts the service with another program in it: the bytes that it reads of a PCI function's
// configuration space are those that root reads outside of it, and more than the 64 that the kernel shows to all users.
func (b booted) readsConfigurationSpace(t *testing.T) {
	t.Helper()
	all, err := filepath.Glob("/sys/bus/pci/devices/*/config")
	if err != nil || len(all) == 0 {
		t.Logf("this machine has no PCI function: whether the unit reads all of its configuration space was not tested (%v)", err)
		return
	}
	count := "cat " + all[0] + " | wc -c"
	want := must(t, b.command(t, "sh", "-c", count))
	if n, err := strconv.Atoi(strings.TrimSpace(want)); err != nil || n <= 64 {
		t.Fatalf("root reads %q bytes of %s", want, all[0])
	}
	drop := "[Service]\nExecStart=\nExecStart=/bin/sh -c '" + count + " >/var/lib/p2pcheck/bytes'\n"
	script := `mkdir -p /run/systemd/system/p2pcheck.service.d && printf '%s' "$0" >/run/systemd/system/p2pcheck.service.d/test.conf && systemctl daemon-reload && systemctl start p2pcheck.service; rm -r /run/systemd/system/p2pcheck.service.d && systemctl daemon-reload`
	must(t, b.command(t, "sh", "-c", script, drop))
	if got := must(t, b.command(t, "cat", "/var/lib/p2pcheck/bytes")); got != want {
		t.Errorf("in the unit %s bytes of %s are read, and %s outside", got, all[0], want)
	}
}

// The units run under a real systemd, closed as they are, and find what p2pcheck finds without them.
func TestServices(t *testing.T) {
	packages := debs(t, built(t, "GPURDMA_PACKAGES"))
	rooted(t)
	for _, from := range suites(t) {
		t.Run(filepath.Base(from), func(t *testing.T) {
			root := copyOf(t, from)
			must(t, inRoot(t, root, append([]string{"dpkg", "-i"}, carry(t, root, packages)...)...))
			b := boot(t, root)
			must(t, b.command(t, "ip", "link", "set", "lo", "up"))
			for _, unit := range []string{"p2pcheck.service", "p2pcheck-agent.service"} {
				check(t, must(t, b.command(t, "systemd-analyze", "security", "--no-pager", "--threshold=30", unit)))
			}
			must(t, b.command(t, "systemctl", "start", "p2pcheck.service"))
			const skip = "LIM,LIB,ENV-CAPS"
			if r := try(t, b.command(t, "p2pcheck", "--json", "--skip", skip, "-o", "/var/tmp/open.json")); r.status != 3 {
				t.Fatalf("p2pcheck outside of the unit: status %d: %s", r.status, r.out)
			}
			if out := must(t, b.command(t, "p2pcheck", "diff", "/var/tmp/open.json", "/var/lib/p2pcheck/last.json")); out != "0 differences\n" {
				t.Errorf("in the unit p2pcheck finds something else: %s", out)
			}
			must(t, b.command(t, "systemctl", "start", "p2pcheck.service"))
			must(t, b.command(t, "test", "-s", "/var/lib/p2pcheck/previous.json"))
			b.readsConfigurationSpace(t)
			b.journal(t, "since the run before:\n0 differences\n")
			// Only root reads the runs: they have lines of the kernel's log.
			if out := must(t, b.command(t, "stat", "-c", "%a", "/var/lib/p2pcheck")); out != "750\n" {
				t.Errorf("/var/lib/p2pcheck has mode %s", out)
			}
			b.timer(t)
			must(t, b.command(t, "systemctl", "start", "p2pcheck-agent.service"))
			fetch := `for i in $(seq 200); do if exec 3<>/dev/tcp/127.0.0.1/9838; then break; fi; sleep 0.1; done 2>/dev/null; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`
			if out := must(t, b.command(t, "bash", "-c", fetch)); !strings.Contains(out, "p2pcheck_status 3\n") {
				t.Errorf("the agent answers %s", out)
			}
			// What fails is seen: a setting that p2pcheck does not take.
			must(t, b.command(t, "sh", "-c", `echo 'P2PCHECK_ARGS="--skip NONE-SUCH"' >/etc/p2pcheck.conf`))
			if r := try(t, b.command(t, "systemctl", "start", "p2pcheck.service")); r.status == 0 {
				t.Error("a run with a wrong argument is no failure of the unit")
			}
			b.journal(t, "NONE-SUCH")
			// The removal ends what runs.
			must(t, b.command(t, append([]string{"dpkg", "--purge"}, names...)...))
			if r := try(t, b.command(t, "systemctl", "is-active", "p2pcheck-agent.service", "p2pcheck.timer")); r.status == 0 || strings.Contains(r.out, "\nactive") || strings.HasPrefix(r.out, "active") {
				t.Errorf("after the purge: %s", r.out)
			}
			if out := must(t, b.command(t, "find", "/etc", "/var/lib", "-name", "*p2pcheck*", "-not", "-path", "/var/lib/dpkg/*")); out != "" {
				t.Errorf("a purge leaves %s", out)
			}
		})
	}
}
