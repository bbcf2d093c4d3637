// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// byHand runs the health check with exactly this environment, as user, and returns its status and what it said.
func byHand(t *testing.T, user uint32, env ...string) (status int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/local/sbin/p2pcheck-health.sh")
	cmd.Env = env
	if len(env) == 0 {
		cmd.Env = []string{"A=b"} // exec takes nil for its own
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// script writes a program for /bin/sh.
func script(t *testing.T, file, text string) {
	t.Helper()
	_ = os.Remove(file)
	write(t, file, "#!/bin/sh\n"+text+"\n")
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Each failure around the check has a message that says what refused. It changes the node's state only where
// it is meant to.
func TestHealthByHand(t *testing.T) {
	Need(t)
	Becomes(t, "node1", Machine(t, lost))
	k := Start(t, Config{Nodes: []string{"node1"}, Lines: SlurmConf(t, "HealthCheckProgram", "Prolog", "TaskProlog"), Conf: P2PCheckConf(t, "[ ! -r /run/more ] || . /run/more")})
	const me = "SLURMD_NODENAME=node1"
	fake := func(text string) string {
		script(t, "/run/fake", text)
		return "P2PCHECK=/run/fake"
	}
	critical := `printf 'P2PCHECK CRITICAL - %s | direct=0\n' "$(cat /run/words)"; exit 2`
	for name, c := range map[string]struct {
		user    uint32
		env     []string
		words   string // of a double of p2pcheck
		before  func()
		after   func()
		status  int
		said    string // a part
		drained string // the reason; "" if the node is not drained
	}{
		// slurmd gives a health check nothing but the node's name.
		"nothing but the name": {env: []string{me}, said: "drained node1", drained: "p2pcheck: 0 of 1 pairs direct (1 lost: addresses)"},
		"an empty PATH":        {env: []string{me, "PATH="}, said: "drained node1", drained: "p2pcheck: 0 of 1 pairs direct (1 lost: addresses)"},
		"no home":              {env: []string{me, "HOME=/proc/1/nowhere"}, said: "drained node1", drained: "p2pcheck: 0 of 1 pairs direct (1 lost: addresses)"},
		"a home to read":       {env: []string{me, "HOME=/sys"}, said: "drained node1", drained: "p2pcheck: 0 of 1 pairs direct (1 lost: addresses)"},
		"no p2pcheck":          {env: []string{me, "P2PCHECK=/none/p2pcheck"}, said: "/none/p2pcheck is not there"},
		"no p2pcheck, asked":   {env: []string{me, "P2PCHECK=/none/p2pcheck", "P2PCHECK_UNKNOWN=drain"}, drained: "p2pcheck: /none/p2pcheck is not there"},
		"it hangs":             {env: []string{me, fake("exec sleep 60"), "P2PCHECK_TIMEOUT=1"}, words: "hang", said: "no answer in 1 seconds"},
		"it crashes":           {env: []string{me, fake("kill -SEGV $$")}, words: "crash", said: "ended with 139"},
		"a node that Slurm does not know": {env: []string{"SLURMD_NODENAME=nobody", "P2PCHECK_ARGS=--skip all --root /srv/node1"},
			before: func() { write(t, "/run/more", "P2PCHECK_ARGS='--skip all --root /srv/node1'\n") }, status: 1, said: "scontrol does not show nobody: Node nobody not found"},
		"a user who may not": {user: 1000, env: []string{me, "P2PCHECK=/run/critical"}, words: "bad", status: 1, said: "scontrol did not drain node1: p2pcheck: bad: slurm_update error: Invalid user id"},
		"no scontrol":        {env: []string{me, "P2PCHECK_SCONTROL=/none/scontrol"}, status: 1, said: "scontrol does not show node1"},
		"munge is down":      {env: []string{me}, before: k.StopMunge, after: k.StartMunge, status: 1, said: "scontrol does not show node1"},
		"slurmctld is down":  {env: []string{me}, before: k.StopControl, after: k.StartControl, status: 1, said: "scontrol does not show node1"},
		"quotes": {env: []string{me, "P2PCHECK=/run/critical"}, words: `fail: "NV-MODTYPE" 'a' $(id) \ State=RESUME # NodeName=x`, said: "drained node1",
			drained: `p2pcheck: fail: 'NV-MODTYPE' 'a' $(id) \ State=RESUME # NodeName=x`},
		"several lines": {env: []string{me, "P2PCHECK=/run/critical"}, words: "a\nReason=b\n   State=IDLE\tc\a\x1b[31m", said: "drained node1", drained: "p2pcheck: a Reason=b    State=IDLE c[31m"},
		"a long one":    {env: []string{me, "P2PCHECK=/run/critical"}, words: strings.Repeat("x", 5000), said: "drained node1", drained: "p2pcheck: " + strings.Repeat("x", 200)},
		"a dry run":     {env: []string{me, "P2PCHECK_DRYRUN=1"}, said: "would drain node1"},
	} {
		t.Run(name, func(t *testing.T) {
			k.Resume("node1")
			_ = os.Remove("/run/more")
			env := c.env
			if c.words != "" && c.words != "hang" && c.words != "crash" {
				write(t, "/run/words", c.words)
				script(t, "/run/critical", critical)
			}
			switch c.words {
			case "hang":
				fake("exec sleep 60")
			case "crash":
				fake("kill -SEGV $$")
			}
			if c.before != nil {
				c.before()
			}
			status, said := byHand(t, c.user, env...)
			if c.after != nil {
				c.after()
			}
			if status != c.status || !strings.Contains(said, c.said) {
				t.Errorf("status %d: %s", status, said)
			}
			if n := k.Node("node1"); n.Drained() != (c.drained != "") || n.Drained() && n.Reason != c.drained {
				t.Errorf("%+v\n%s", n, said)
			}
		})
	}
}

// slurmd gives a health check the name of the node, and neither PATH nor HOME. The script's head says so.
func TestHealthEnvironment(t *testing.T) {
	Need(t)
	script(t, "/usr/local/sbin/environment.sh", "cat /proc/$$/environ >/run/.environment; mv /run/.environment /run/environment.$SLURMD_NODENAME")
	k := Start(t, Config{Nodes: []string{"node1"}, Lines: append(SlurmConf(t, "HealthCheckProgram", "Prolog", "TaskProlog"), "HealthCheckProgram=/usr/local/sbin/environment.sh")})
	k.Until("it has run", func() bool { _, err := os.Stat("/run/environment.node1"); return err == nil })
	text, err := os.ReadFile("/run/environment.node1")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimRight(string(text), "\x00"); got != "SLURMD_NODENAME=node1" {
		t.Errorf("%q", strings.Split(got, "\x00"))
	}
}
