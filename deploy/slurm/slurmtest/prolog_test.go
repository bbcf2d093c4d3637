// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"os"
	"strings"
	"testing"
)

// job is what Slurm says of a job.
func job(k *Cluster, id string) map[string]string {
	k.t.Helper()
	out := map[string]string{}
	for _, word := range strings.Fields(k.must("scontrol", "-o", "show", "job", id)) {
		key, value, _ := strings.Cut(word, "=")
		out[key] = value
	}
	return out
}

// submit submits a batch job of alice.
func submit(k *Cluster, args ...string) (id string) {
	k.t.Helper()
	out, err := k.Alice("sbatch", append([]string{"--parsable", "-o", "/tmp/job-%j.out"}, args...)...)
	if err != nil {
		k.t.Fatal(err, out)
	}
	return strings.TrimSpace(out)
}

// prologs is two nodes, of which node1 is bad and the health check does not run.
func prologs(t *testing.T, without ...string) *Cluster {
	t.Helper()
	Need(t)
	Becomes(t, "node1", Machine(t, lost))
	Becomes(t, "node2", Machine(t, good))
	return Start(t, Config{Nodes: []string{"node1", "node2"}, Lines: SlurmConf(t, append(without, "HealthCheckProgram")...), Conf: P2PCheckConf(t)})
}

const lostReason = "p2pcheck: 0 of 1 pairs direct (1 lost: addresses)"

// A failed prolog requeues the job, and with the document's lines it is not held: it runs on another node. The
// bad one is drained, for our reason, and is resumed by the health check.
func TestPrologRequeues(t *testing.T) {
	k := prologs(t)
	id := submit(k, "--wrap", "echo ran on $SLURMD_NODENAME", "-w", "node1")
	k.Until("node1 is drained", func() bool { return k.Node("node1").Drained() })
	if n := k.Node("node1"); n.Reason != lostReason || !strings.HasPrefix(n.By, "root@") {
		t.Errorf("%+v", n)
	}
	k.Until("the job is requeued", func() bool { return job(k, id)["Restarts"] == "1" && job(k, id)["JobState"] == "PENDING" })
	if j := job(k, id); j["Priority"] == "0" || strings.Contains(j["Reason"], "held") {
		t.Errorf("the job is held: %v", j)
	}
	// Slurm starts it after two minutes at the earliest. The test does not wait for these.
	k.must("scontrol", "update", "JobId="+id, "ReqNodeList=", "StartTime=now")
	k.Until("the job has run", func() bool { return job(k, id)["JobState"] == "COMPLETED" })
	if out, err := os.ReadFile("/tmp/job-" + id + ".out"); err != nil || string(out) != "ran on node2\n" {
		t.Errorf("%v %s", err, out)
	}
	Becomes(t, "node1", Machine(t, good))
	if status, said := byHand(t, 0, "SLURMD_NODENAME=node1"); status != 0 || !strings.Contains(said, "resumed node1") {
		t.Errorf("status %d: %s", status, said)
	}
	if n := k.Node("node1"); n.Drained() {
		t.Errorf("%+v", n)
	}
}

// Without nohold_on_prolog_fail, which is the default of Slurm, the job is held.
func TestPrologHoldsWithoutTheSetting(t *testing.T) {
	k := prologs(t, "SchedulerParameters")
	id := submit(k, "--wrap", "true", "-w", "node1")
	k.Until("node1 is drained", func() bool { return k.Node("node1").Drained() })
	k.Until("the job is held", func() bool { return job(k, id)["JobState"] == "PENDING" && job(k, id)["Priority"] == "0" })
	if j := job(k, id); !strings.Contains(j["Reason"], "held") {
		t.Errorf("%v", j)
	}
}

// srun outside of a batch job is not requeued: Slurm cancels it.
func TestPrologCancelsSrun(t *testing.T) {
	k := prologs(t)
	out, err := k.Alice("srun", "-w", "node1", "true")
	if err == nil || !strings.Contains(out, "Prolog failure on node node1") && !strings.Contains(out, "launch failed") {
		t.Errorf("%v %s", err, out)
	}
	k.Until("node1 is drained", func() bool { return k.Node("node1").Drained() })
	if n := k.Node("node1"); n.Reason != lostReason {
		t.Errorf("%+v", n)
	}
	if out, err := k.Alice("srun", "-Q", "-w", "node2", "printenv", "SLURMD_NODENAME"); err != nil || out != "node2\n" {
		t.Errorf("%v %s", err, out)
	}
}

// A p2pcheck that is not there or hangs, and settings that sh cannot read, keep no job from a node.
func TestPrologWithoutAnAnswer(t *testing.T) {
	Need(t)
	k := Start(t, Config{Nodes: []string{"node1"}, Lines: SlurmConf(t, "HealthCheckProgram"), Conf: P2PCheckConf(t, ". /run/setting")})
	script(t, "/run/hangs", "exec sleep 60")
	for _, setting := range []string{"if", "exit 3", "echo $NOT_SET", "P2PCHECK=/none/p2pcheck", "P2PCHECK=/run/hangs P2PCHECK_TIMEOUT=1"} {
		write(t, "/run/setting", setting+"\n")
		if out, err := k.Alice("srun", "-Q", "-w", "node1", "printenv", "SLURMD_NODENAME"); err != nil || out != "node1\n" {
			t.Errorf("%s: %v %s", setting, err, out)
		}
		if n := k.Node("node1"); n.Drained() {
			t.Errorf("%s: %+v", setting, n)
		}
	}
}

// A job that is cancelled while its prolog runs: the node takes the next job, and no process stays.
func TestPrologOfACancelledJob(t *testing.T) {
	Need(t)
	Becomes(t, "node1", Machine(t, good))
	_ = os.Remove("/run/begun")
	script(t, "/run/slow", "[ -e /run/begun ] || { touch /run/begun; sleep 3; }; exec /usr/local/bin/p2pcheck \"$@\"")
	k := Start(t, Config{Nodes: []string{"node1"}, Lines: SlurmConf(t, "HealthCheckProgram"), Conf: P2PCheckConf(t, "P2PCHECK=/run/slow")})
	id := submit(k, "--wrap", "true")
	k.Until("the prolog has begun", func() bool { _, err := os.Stat("/run/begun"); return err == nil })
	if out, err := k.Alice("scancel", id); err != nil {
		t.Fatal(err, out)
	}
	k.Until("the job has ended", func() bool { return job(k, id)["JobState"] == "CANCELLED" })
	k.Until("the node is free", func() bool { s := k.Node("node1").State; return !strings.Contains(s, "COMPLETING") })
	if n := k.Node("node1"); n.Drained() {
		t.Errorf("%+v", n)
	}
	if out, err := k.Alice("srun", "-Q", "-w", "node1", "printenv", "SLURMD_NODENAME"); err != nil || out != "node1\n" {
		t.Errorf("%v %s", err, out)
	}
}
