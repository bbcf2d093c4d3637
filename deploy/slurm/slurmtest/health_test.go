// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"os"
	"strings"
	"testing"
)

// Machines of the corpus: all pairs of each have one outcome.
const (
	good    = "case-08-emerald-rapids"
	lost    = "case-01-translating-iommu"
	staged  = "a100-nouveau"
	unknown = "flat-vm"
)

// rounds waits until the health check of a node has run n times from its beginning to its end.
func rounds(k *Cluster, node string, n int) {
	k.t.Helper()
	mark := "/run/rounds." + node
	k.Until("the health check has run", func() bool {
		text, _ := os.ReadFile(mark)
		return strings.Count(string(text), "\n") >= n
	})
}

// counted is a program in place of the health check that runs it, and counts. Each test begins at 0.
func counted(t *testing.T) []string {
	t.Helper()
	const file = "/usr/local/sbin/counted.sh"
	_ = os.Remove(file)
	write(t, file, "#!/bin/sh\n/usr/local/sbin/p2pcheck-health.sh\nstatus=$?\necho $status >>/run/rounds.$SLURMD_NODENAME\nexit $status\n")
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
	lines := SlurmConf(t, "HealthCheckProgram", "Prolog", "TaskProlog")
	return append(lines, "HealthCheckProgram="+file)
}

// again begins to count anew. Two rounds later a check has begun and ended since.
func again(k *Cluster, node string) {
	k.t.Helper()
	if err := os.WriteFile("/run/rounds."+node, nil, 0o644); err != nil {
		k.t.Fatal(err)
	}
	rounds(k, node, 2)
}

// The health check drains the node that is bad, with the reason, and no other. It tells of another fault, and resumes
// the node when that is mended.
func TestHealthDrainsAndResumes(t *testing.T) {
	Need(t)
	Becomes(t, "node1", Machine(t, good))
	Becomes(t, "node2", Machine(t, good))
	k := Start(t, Config{Nodes: []string{"node1", "node2"}, Lines: SlurmConf(t), Conf: P2PCheckConf(t)})
	Becomes(t, "node1", Machine(t, lost))
	k.Until("node1 is drained", func() bool { return k.Node("node1").Drained() })
	if n := k.Node("node1"); n.Reason != "p2pcheck: 0 of 1 pairs direct (1 lost: addresses)" || !strings.HasPrefix(n.By, "root@") {
		t.Errorf("%+v", n)
	}
	if out, err := k.Alice("srun", "--immediate=2", "-w", "node1", "true"); err == nil {
		t.Errorf("node1 takes a job: %s", out)
	}
	if n := k.Node("node2"); n.Drained() || n.Reason != "" {
		t.Errorf("node2: %+v", n)
	}
	Becomes(t, "node1", Machine(t, staged))
	k.Until("the reason is another one", func() bool { return strings.Contains(k.Node("node1").Reason, "staged") })
	if n := k.Node("node1"); n.Reason != "p2pcheck: 0 of 1 pairs direct (1 staged: attach)" || !n.Drained() {
		t.Errorf("%+v", n)
	}
	Becomes(t, "node1", Machine(t, good))
	k.Until("node1 is idle", func() bool { return k.Node("node1").State == "IDLE" })
	// Slurm 22.05 has no reason then, 24.11 keeps one until the next job: it is none of the check's own.
	k.Until("the reason is no more its own", func() bool { return !strings.HasPrefix(k.Node("node1").Reason, "p2pcheck: ") })
	if n := k.Node("node1"); n.Reason != "" && !strings.HasPrefix(n.Reason, "resumed, was p2pcheck: ") {
		t.Errorf("%+v", n)
	}
	if out, err := k.Alice("srun", "-Q", "-w", "node1", "printenv", "SLURMD_NODENAME"); err != nil || out != "node1\n" {
		t.Errorf("%v %s", err, out)
	}
}

// The check does not change a node that another user has drained, for any answer of p2pcheck.
func TestHealthLeavesOthersAlone(t *testing.T) {
	Need(t)
	Becomes(t, "node1", Machine(t, good))
	k := Start(t, Config{Nodes: []string{"node1"}, Lines: counted(t), Conf: P2PCheckConf(t)})
	stays := func(when, state, reason string) {
		t.Helper()
		again(k, "node1")
		if n := k.Node("node1"); !strings.HasPrefix(n.State, state) || n.Reason != reason {
			t.Errorf("%s: %+v", when, n)
		}
	}
	k.must("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=disk p2pcheck: swap")
	stays("good", "IDLE+DRAIN", "disk p2pcheck: swap")
	Becomes(t, "node1", Machine(t, lost))
	stays("bad", "IDLE+DRAIN", "disk p2pcheck: swap")
	k.must("scontrol", "update", "NodeName=node1", "State=RESUME")
	k.Until("node1 is drained by the check", func() bool { return strings.HasPrefix(k.Node("node1").Reason, "p2pcheck: ") })
	// An administrator takes it over.
	k.must("scontrol", "update", "NodeName=node1", "Reason=alice looks at it")
	Becomes(t, "node1", Machine(t, good))
	stays("taken over", "IDLE+DRAIN", "alice looks at it")
	// A maintenance, and a node that is down: no check says that these are over.
	k.must("scontrol", "update", "NodeName=node1", "Reason=p2pcheck: lost")
	k.must("scontrol", "create", "reservation", "ReservationName=m", "StartTime=now", "Duration=60", "Users=root", "Flags=maint", "Nodes=node1")
	k.Until("the maintenance begins", func() bool { return strings.Contains(k.Node("node1").State, "MAINT") })
	k.must("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=p2pcheck: lost")
	stays("maintenance", "IDLE+DRAIN+MAINTENANCE", "p2pcheck: lost")
	k.must("scontrol", "delete", "ReservationName=m")
	k.Until("node1 is idle after it", func() bool { return k.Node("node1").State == "IDLE" })
	k.must("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=p2pcheck: by hand")
	stays("down", "DOWN", "p2pcheck: by hand")
}

// P2PCHECK_RESUME=no resumes nothing. A node with unknown pairs is neither drained nor resumed. A node that equals its
// baseline is resumed.
func TestHealthSettings(t *testing.T) {
	Need(t)
	Becomes(t, "node1", Machine(t, lost))
	Becomes(t, "node2", Machine(t, unknown))
	Becomes(t, "node3", Machine(t, lost))
	baseline := "/run/p2pcheck-baseline.json"
	k := &Cluster{t: t}
	k.programs()
	out, _ := k.Root("/usr/local/bin/p2pcheck", "--json", "--skip", "all", "--root", "/srv/node3", "-o", baseline)
	if _, err := os.Stat(baseline); err != nil {
		t.Fatal(err, out)
	}
	k = Start(t, Config{Nodes: []string{"node1", "node2", "node3"}, Lines: counted(t), Conf: P2PCheckConf(t,
		`[ $SLURMD_NODENAME != node1 ] || { P2PCHECK_RESUME=no; P2PCHECK_DRYRUN=$(cat /run/dry); }`,
		`[ $SLURMD_NODENAME != node3 ] || P2PCHECK_ARGS="$P2PCHECK_ARGS --baseline `+baseline+`"`)}.dry(t))
	for _, n := range []string{"node1", "node2", "node3"} {
		again(k, n)
		if n := k.Node(n); n.Drained() {
			t.Errorf("%+v", n) // a dry run; unknown; as in the baseline
		}
	}
	write(t, "/run/dry", "")
	k.Until("node1 is drained", func() bool { return k.Node("node1").Drained() })
	Becomes(t, "node1", Machine(t, good))
	for _, n := range []string{"node2", "node3"} {
		k.must("scontrol", "update", "NodeName="+n, "State=DRAIN", "Reason=p2pcheck: lost")
	}
	k.Until("node3 is idle", func() bool { return k.Node("node3").State == "IDLE" })
	for _, n := range []string{"node1", "node2"} {
		again(k, n)
		if x := k.Node(n); !x.Drained() || !strings.HasPrefix(x.Reason, "p2pcheck: ") {
			t.Errorf("%s: %+v", n, x)
		}
	}
}

// dry makes the settings of TestHealthSettings begin with a dry run.
func (c Config) dry(t *testing.T) Config {
	t.Helper()
	write(t, "/run/dry", "1")
	return c
}

// Daemons that are started again change nothing: the reason is Slurm's, and outlives the health check's node.
func TestHealthAfterRestarts(t *testing.T) {
	Need(t)
	Becomes(t, "node1", Machine(t, good))
	k := Start(t, Config{Nodes: []string{"node1"}, Lines: counted(t), Conf: P2PCheckConf(t)})
	Becomes(t, "node1", Machine(t, lost))
	k.Until("node1 is drained", func() bool { return k.Node("node1").Drained() })
	before := k.Node("node1")
	k.StopNode("node1")
	k.StopControl()
	k.StartControl()
	k.StartNode("node1")
	again(k, "node1")
	if n := k.Node("node1"); !n.Drained() || n.Reason != before.Reason || n.By != before.By {
		t.Errorf("%+v, and before %+v", n, before)
	}
	Becomes(t, "node1", Machine(t, good))
	k.Until("node1 is idle", func() bool { return k.Node("node1").State == "IDLE" })
	// The check runs when slurmd starts, also where its next time is far away.
	k.StopNode("node1")
	conf, err := os.ReadFile("/etc/slurm/slurm.conf")
	if err != nil {
		t.Fatal(err)
	}
	write(t, "/etc/slurm/slurm.conf", strings.Replace(string(conf), "HealthCheckInterval=2\n", "HealthCheckInterval=3600\n", 1))
	k.StopControl()
	k.StartControl()
	for range 2 { // the second time slurmctld has run for longer
		if err := os.WriteFile("/run/rounds.node1", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		k.StartNode("node1")
		rounds(k, "node1", 1)
		k.StopNode("node1")
	}
}
