// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Wait is how long the tests wait for a state before they fail. The states come within seconds.
const Wait = 30 * time.Second

// Config is how a cluster is configured, beside what all have.
type Config struct {
	Nodes []string // their names
	Lines []string // of slurm.conf
	Gres  []string // the lines of gres.conf; none where there are no GPUs
	GPUs  int      // of each node, as slurm.conf counts them
	Type  string   // of the GPUs; "" for none
	Conf  []string // the lines of /etc/p2pcheck.conf
}

// Cluster is daemons that run.
type Cluster struct {
	t       *testing.T
	c       Config
	munged  *exec.Cmd
	control *exec.Cmd
	daemons map[string]*exec.Cmd // slurmd of each node
}

// Need skips the test where make test-slurm does not run it.
func Need(t *testing.T) {
	t.Helper()
	if os.Getenv("GPURDMA_SLURM") != "inside" {
		t.Skip("needs Slurm's daemons in namespaces of their own: run make test-slurm")
	}
}

// Start starts a cluster, which ends with the test. All nodes are idle then.
func Start(t *testing.T, c Config) *Cluster {
	t.Helper()
	Need(t)
	k := &Cluster{t: t, c: c, daemons: map[string]*exec.Cmd{}}
	for _, d := range []string{"/etc/slurm", "/etc/munge", "/run/munge", "/var/lib/munge", "/var/log/munge", "/var/lib/slurm", "/var/log/slurm", "/run/p2pcheck"} {
		if err := os.RemoveAll(d); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k.programs()
	write(t, "/etc/slurm/slurm.conf", k.slurmConf())
	write(t, "/etc/slurm/gres.conf", strings.Join(c.Gres, "\n")+"\n")
	write(t, "/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n") // enter.sh has an empty one
	write(t, "/etc/p2pcheck.conf", strings.Join(c.Conf, "\n")+"\n")
	t.Cleanup(k.stop)
	k.StartMunge()
	k.StartControl()
	for _, n := range c.Nodes {
		k.StartNode(n)
	}
	k.Until("all nodes are idle", func() bool {
		out, err := k.Root("sinfo", "-hN", "-o", "%T")
		return err == nil && strings.Count(out, "idle\n") == len(c.Nodes) && strings.Count(out, "\n") == len(c.Nodes)
	})
	return k
}

// programs puts what is tested where the documents say.
func (k *Cluster) programs() {
	for from, to := range map[string]string{
		"/opt/p2pcheck":                             "/usr/local/bin/p2pcheck",
		"/opt/slurm-p2p":                            "/usr/local/bin/slurm-p2p",
		"/src/deploy/slurm/p2pcheck-health.sh":      "/usr/local/sbin/p2pcheck-health.sh",
		"/src/deploy/slurm/p2pcheck-task-prolog.sh": "/usr/local/sbin/p2pcheck-task-prolog.sh",
	} {
		if err := errors.Join(os.RemoveAll(to), os.Symlink(from, to)); err != nil {
			k.t.Fatal(err)
		}
	}
}

// slurmConf is what a cluster on one machine needs, and the lines of the test. %n in a path is the node's name.
func (k *Cluster) slurmConf() string {
	var b strings.Builder
	b.WriteString(`ClusterName=test
SlurmctldHost=slurmtest(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/control
SlurmdSpoolDir=/var/lib/slurm/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/control.log
SlurmdLogFile=/var/log/slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
KillWait=1
ReturnToService=1
`)
	for _, l := range k.c.Lines {
		b.WriteString(l + "\n")
	}
	for i, n := range k.c.Nodes {
		gres := ""
		if k.c.GPUs > 0 {
			gres = strings.Replace(fmt.Sprintf(" Gres=gpu:%s:%d", k.c.Type, k.c.GPUs), "::", ":", 1)
		}
		fmt.Fprintf(&b, "NodeName=%s NodeHostname=slurmtest NodeAddr=127.0.0.1 Port=%d CPUs=16 RealMemory=100%s\n", n, 17001+i, gres)
	}
	b.WriteString("PartitionName=all Nodes=ALL Default=YES State=UP\n")
	return b.String()
}

// StartMunge starts munged with a key of its own.
func (k *Cluster) StartMunge() {
	k.t.Helper()
	if _, err := os.Stat("/etc/munge/munge.key"); err != nil {
		k.must("mungekey", "-c")
	}
	for dir, mode := range map[string]os.FileMode{"/etc/munge": 0o700, "/run/munge": 0o755, "/var/lib/munge": 0o711, "/var/log/munge": 0o700} {
		k.must("chown", "-R", "munge:munge", dir)
		if err := os.Chmod(dir, mode); err != nil {
			k.t.Fatal(err)
		}
	}
	k.munged = k.daemon(110, "munged", "--foreground")
	k.Until("munge works", func() bool {
		_, err := k.Root("sh", "-c", "munge -n | unmunge")
		return err == nil
	})
}

// StopMunge ends munged.
func (k *Cluster) StopMunge() { k.end(k.munged) }

// StartControl starts slurmctld.
func (k *Cluster) StartControl() {
	k.t.Helper()
	k.must("chown", "slurm:slurm", "/var/lib/slurm", "/var/log/slurm")
	k.control = k.daemon(0, "slurmctld", "-D")
	k.Until("slurmctld answers", func() bool {
		_, err := k.Root("timeout", "3", "sinfo", "-h")
		return err == nil
	})
}

// StopControl ends slurmctld.
func (k *Cluster) StopControl() { k.end(k.control) }

// StartNode starts the slurmd of a node, with an environment that has nothing.
func (k *Cluster) StartNode(node string) {
	k.t.Helper()
	if err := os.MkdirAll("/var/lib/slurm/"+node, 0o755); err != nil {
		k.t.Fatal(err)
	}
	k.daemons[node] = k.daemon(0, "slurmd", "-D", "-N", node)
}

// StopNode ends the slurmd of a node.
func (k *Cluster) StopNode(node string) { k.end(k.daemons[node]) }

// daemon starts a program that stays in the foreground.
func (k *Cluster) daemon(user uint32, name string, args ...string) *exec.Cmd {
	k.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		k.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin"}
	cmd.Dir = "/"
	if user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	return cmd
}

// end ends a daemon, by its id.
func (k *Cluster) end(cmd *exec.Cmd) {
	if cmd == nil || cmd.ProcessState != nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	timer.Stop()
}

// stop ends the cluster. If the test has failed, it shows the ends of the logs.
func (k *Cluster) stop() {
	if k.t.Failed() {
		logs, _ := filepath.Glob("/var/log/slurm/*.log")
		for _, l := range logs {
			text, _ := os.ReadFile(l)
			lines := slices.DeleteFunc(bytes.Split(text, []byte("\n")), func(line []byte) bool {
				return bytes.Contains(line, []byte("differs from hardware")) || bytes.Contains(line, []byte("mpi/pmix"))
			})
			k.t.Logf("%s:\n%s", l, bytes.Join(lines[max(0, len(lines)-25):], []byte("\n")))
		}
	}
	_, _ = k.Root("timeout", "5", "scancel", "--full", "-u", "root,alice")
	for _, cmd := range k.daemons {
		k.end(cmd)
	}
	k.end(k.control)
	k.end(k.munged)
}

// Until waits until something is so.
func (k *Cluster) Until(what string, is func() bool) {
	k.t.Helper()
	for end := time.Now().Add(Wait); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			out, _ := k.Root("scontrol", "-o", "show", "node")
			k.t.Fatalf("it never came that %s\n%s", what, out)
		}
	}
}

// Resume resumes a node, if it is drained. After a restart slurmctld refuses this until slurmd has reported.
func (k *Cluster) Resume(node string) {
	k.t.Helper()
	k.Until(node+" is resumed", func() bool {
		if k.Node(node).Drained() {
			_, _ = k.Root("scontrol", "update", "NodeName="+node, "State=RESUME")
		}
		return !k.Node(node).Drained()
	})
}

// Root runs a command as root, and returns what it printed.
func (k *Cluster) Root(name string, args ...string) (string, error) {
	return k.run(0, nil, name, args...)
}

// Alice runs a command as the user of the jobs.
func (k *Cluster) Alice(name string, args ...string) (string, error) {
	return k.run(1000, nil, name, args...)
}

// RootWith is Root with variables.
func (k *Cluster) RootWith(env []string, name string, args ...string) (string, error) {
	return k.run(0, env, name, args...)
}

// AliceWith is Alice with variables.
func (k *Cluster) AliceWith(env []string, name string, args ...string) (string, error) {
	return k.run(1000, env, name, args...)
}

func (k *Cluster) run(user uint32, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin", "HOME=/tmp"}, env...) // of two values of a name the last counts
	cmd.Dir = "/tmp"
	if user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// must runs a command as root that has to succeed.
func (k *Cluster) must(name string, args ...string) string {
	k.t.Helper()
	out, err := k.Root(name, args...)
	if err != nil {
		k.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

// Node is what Slurm says of a node.
type Node struct{ State, Reason, By string }

// Drained reports whether the node takes no jobs.
func (n Node) Drained() bool { return strings.Contains(n.State, "DRAIN") }

// Node asks Slurm for a node.
func (k *Cluster) Node(name string) (n Node) {
	k.t.Helper()
	for line := range strings.Lines(k.must("scontrol", "show", "node", name)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "State":
			n.State, _, _ = strings.Cut(value, " ")
		case "Reason":
			n.Reason, n.By, _ = strings.Cut(value, " [")
		}
	}
	return n
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
