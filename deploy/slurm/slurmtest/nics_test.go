// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/deploy/slurm/gres"
	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
)

// devices makes device files for GPUs: Slurm takes no plain files.
func devices(t *testing.T, names ...string) {
	t.Helper()
	for i, name := range names {
		_ = os.Remove(name)
		if err := unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(i)))); err != nil {
			t.Fatal(name, err)
		}
	}
}

// withGPUs starts a node with a machine of the corpus, and with the lines that slurm-p2p gres writes for gres.conf, or
// with others.
func withGPUs(t *testing.T, machine string, gpus int, lines []string, minors ...int) *Cluster {
	t.Helper()
	Need(t)
	var files []string
	for i := range max(gpus, 8) {
		files = append(files, fmt.Sprint("/dev/nvidia", i))
	}
	devices(t, files...)
	Becomes(t, "node1", Machine(t, machine, minors...))
	_ = os.Remove("/run/p2pcheck/node1.json")
	if lines == nil {
		k := &Cluster{t: t}
		k.programs()
		out := k.must("sh", "-c", "/usr/local/bin/p2pcheck --json --skip all --root /srv/node1 | /usr/local/bin/slurm-p2p gres --node node1 --root /srv/node1")
		lines = strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != gpus {
			t.Fatal(out)
		}
	}
	k := Start(t, Config{Nodes: []string{"node1"}, Lines: SlurmConf(t, "Prolog"), Gres: lines, GPUs: gpus, Conf: P2PCheckConf(t)})
	k.Until("there is a plan", func() bool { _, err := os.Stat("/run/p2pcheck/node1.json"); return err == nil })
	return k
}

// plan reads the plan of node1.
func plan(t *testing.T) *nicplan.Plan {
	t.Helper()
	return planOf(t, "node1")
}

func planOf(t *testing.T, node string) *nicplan.Plan {
	t.Helper()
	p, err := nicplan.Read("/run/p2pcheck/" + node + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// task is the variables of a task.
type task struct{ env map[string]string }

const print = `env | grep -E '^(GPURDMA|NCCL|UCX|NVSHMEM|CUDA|SLURM_STEP_GPUS|SLURM_JOB_GPUS|SLURM_PROCID|SLURMD_NODENAME)'; `

// tasks reads what tasks printed that ran print: each line begins with the number of its task.
func tasks(out string) (list []task) {
	byID := map[string]task{}
	for line := range strings.Lines(out) {
		id, text, ok := strings.Cut(strings.TrimSpace(line), ": ")
		name, value, isSet := strings.Cut(text, "=")
		if !ok || !isSet || strings.Trim(id, "0123456789") != "" {
			continue // a remark of srun
		}
		if _, is := byID[id]; !is {
			byID[id] = task{map[string]string{}}
		}
		byID[id].env[name] = value
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		list = append(list, byID[id])
	}
	return list
}

// srun runs a step of alice, and returns its tasks.
func srun(k *Cluster, env []string, args ...string) []task {
	k.t.Helper()
	out, err := k.AliceWith(env, "srun", append(append([]string{"--label", "-w", "node1"}, args...), "sh", "-c", print)...)
	if err != nil {
		k.t.Errorf("srun %q: %v\n%s", args, err, out)
	}
	list := tasks(out)
	if len(list) == 0 {
		k.t.Fatalf("srun %q: %s", args, out)
	}
	return list
}

// hgx is the NIC next to each GPU of the machine hgx, by what its document says.
var hgx = map[string]string{
	"0000:13:00.0": "mlx5_0", "0000:15:00.0": "mlx5_1", "0000:43:00.0": "mlx5_2", "0000:45:00.0": "mlx5_3",
	"0000:73:00.0": "mlx5_4", "0000:75:00.0": "mlx5_5", "0000:a3:00.0": "mlx5_6", "0000:a5:00.0": "mlx5_7",
}

// check checks the variables of a task with these GPUs, in the order of the GPUs.
func check(t *testing.T, x task, gpus ...string) {
	t.Helper()
	var pairs, names, ports []string
	for _, g := range gpus {
		pairs, names, ports = append(pairs, g+"="+hgx[g]), append(names, hgx[g]), append(ports, hgx[g]+":1")
	}
	for name, want := range map[string]string{
		"GPURDMA_PAIRS": strings.Join(pairs, ","), "NCCL_IB_HCA": "=" + strings.Join(names, ","),
		"UCX_NET_DEVICES": strings.Join(ports, ","), "NVSHMEM_HCA_LIST": strings.Join(ports, ","),
	} {
		if x.env[name] != want {
			t.Errorf("%s is %q, want %q: %v", name, x.env[name], want, x)
		}
	}
}

// none checks that a task has no NIC, and that it is told why.
func none(t *testing.T, x task, why string) {
	t.Helper()
	for _, name := range []string{"GPURDMA_PAIRS", "NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", "CUDA_DEVICE_ORDER"} {
		if v, ok := x.env[name]; ok && (name != "CUDA_DEVICE_ORDER" || v == nicplan.PCIOrder) {
			t.Errorf("%s is %q: %v", name, v, x)
		}
	}
	if !strings.Contains(x.env["GPURDMA_NO_NICS"], why) {
		t.Errorf("GPURDMA_NO_NICS is %q, want %q", x.env["GPURDMA_NO_NICS"], why)
	}
}

// at returns the GPU of a task by Slurm's number, which is the order of PCI addresses.
func at(t *testing.T, x task, name string) string {
	t.Helper()
	all := slices.Sorted(maps.Keys(hgx))
	for i, g := range all {
		if x.env[name] == fmt.Sprint(i) {
			return g
		}
	}
	t.Fatalf("%s is %q: %v", name, x.env[name], x)
	return ""
}

// Each job has the NIC next to its GPU: eight jobs at once, each of another GPU; jobs of several GPUs; tasks that share
// a job's GPUs; a batch script. The device files are not numbered by PCI address.
func TestNICsOfJobs(t *testing.T) {
	k := withGPUs(t, "hgx", 8, nil, 3, 2, 1, 0, 7, 6, 5, 4)
	if p := plan(t); p.Order != nicplan.PCIOrder || p.GPUs[0].File != "/dev/nvidia3" || p.GPUs[0].PCI != "0000:13:00.0" {
		t.Errorf("%+v", p)
	}
	var wait sync.WaitGroup
	var lock sync.Mutex
	nics := map[string]bool{}
	for range 8 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			// They hold their GPUs until all eight have begun.
			out, err := k.Alice("srun", "--label", "-w", "node1", "--gres=gpu:1", "sh", "-c", print+`: >/tmp/hold.$SLURM_JOB_ID; until [ $(ls /tmp/hold.* | wc -l) -ge 8 ]; do sleep 0.1; done`)
			lock.Lock()
			defer lock.Unlock()
			list := tasks(out)
			if err != nil || len(list) != 1 {
				t.Errorf("%v %s", err, out)
				return
			}
			check(t, list[0], at(t, list[0], "SLURM_STEP_GPUS"))
			if v := list[0].env["CUDA_DEVICE_ORDER"]; v != nicplan.PCIOrder {
				t.Errorf("CUDA_DEVICE_ORDER is %q", v)
			}
			if nic := list[0].env["NCCL_IB_HCA"]; nics[nic] {
				t.Errorf("two jobs have %s", nic)
			} else {
				nics[nic] = true
			}
		}()
	}
	wait.Wait()
	if len(nics) != 8 {
		t.Errorf("%v", nics)
	}
	all := slices.Sorted(maps.Keys(hgx))
	check(t, srun(k, nil, "--gres=gpu:8")[0], all...)
	two := srun(k, nil, "-n2", "--gres=gpu:2", "--gpu-bind=single:1")
	if len(two) != 2 {
		t.Fatal(two)
	}
	for _, x := range two {
		check(t, x, at(t, x, "SLURM_STEP_GPUS"))
	}
	if two[0].env["NCCL_IB_HCA"] == two[1].env["NCCL_IB_HCA"] {
		t.Errorf("two tasks have one NIC: %v", two)
	}
	// A batch script, and a step of it with one of its GPUs, and one with none.
	script(t, "/tmp/batch.sh", print+"\necho ---\nsrun --gres=gpu:1 sh -c \""+print+"\"\necho ---\nsrun --gres=none sh -c \""+print+"\"")
	id := submit(k, "--gres=gpu:2", "/tmp/batch.sh")
	k.Until("the batch job has run", func() bool { return job(k, id)["JobState"] == "COMPLETED" })
	out, err := os.ReadFile("/tmp/job-" + id + ".out")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(out), "---\n")
	if len(parts) != 3 {
		t.Fatalf("%s", out)
	}
	of := func(part string) task {
		var b strings.Builder
		for line := range strings.Lines(part) {
			b.WriteString("0: " + line)
		}
		return append(tasks(b.String()), task{})[0]
	}
	check(t, of(parts[0]), all[:2]...)
	// A step inherits the variables of the batch script, and is to have its own.
	step := of(parts[1])
	check(t, step, at(t, step, "SLURM_STEP_GPUS"))
	none(t, of(parts[2]), "")
	x := srun(k, nil)[0]
	none(t, x, "")
	if why, is := x.env["GPURDMA_NO_NICS"]; is {
		t.Errorf("a task without a GPU is told %q", why)
	}
}

// Where it is not certain which GPUs a task uses, it has no NIC, and the reason is on its standard error.
func TestNICsUnknown(t *testing.T) {
	k := withGPUs(t, "hgx", 8, nil)
	// The job counts the GPUs in another way.
	none(t, srun(k, []string{"CUDA_DEVICE_ORDER=FASTEST_FIRST"}, "--gres=gpu:1")[0], "CUDA_DEVICE_ORDER is FASTEST_FIRST")
	// It has all of them: then the order does not matter.
	check(t, srun(k, []string{"CUDA_DEVICE_ORDER=FASTEST_FIRST"}, "--gres=gpu:8")[0], slices.Sorted(maps.Keys(hgx))...)
	// A variable of the job is not changed.
	x := srun(k, []string{"NCCL_IB_HCA=mlx5_9"}, "--gres=gpu:1")[0]
	if x.env["NCCL_IB_HCA"] != "mlx5_9" || x.env["UCX_NET_DEVICES"] == "" {
		t.Errorf("%v", x)
	}
	// A plan of another start of the machine, then a machine of which nothing is known, which removes the plan's NICs, then
	// no p2pcheck, which removes the plan.
	p := plan(t)
	k.Until("node1 is idle", func() bool { return k.Node("node1").State == "IDLE" }) // not COMPLETING
	k.StopNode("node1")
	p.Boot = "another"
	if err := p.Write("/run/p2pcheck/node1.json"); err != nil {
		t.Fatal(err)
	}
	write(t, "/etc/p2pcheck.conf", strings.Join(P2PCheckConf(t, "P2PCHECK_RESUME=no", ". /run/setting"), "\n")+"\n")
	write(t, "/run/setting", "P2PCHECK_NICS=/run/elsewhere; case $0 in *task*) P2PCHECK_NICS=/run/p2pcheck ;; esac\n")
	k.StartNode("node1")
	k.Until("node1 is idle", func() bool { return k.Node("node1").State == "IDLE" })
	none(t, srun(k, nil, "--gres=gpu:1")[0], "is of an earlier boot")
	write(t, "/run/setting", "")
	Becomes(t, "node1", Machine(t, "hgx-remap-off"))
	k.Until("the plan has no NIC", func() bool {
		p, err := nicplan.Read("/run/p2pcheck/node1.json")
		return err == nil && p.Boot != "another" && len(p.GPUs[0].NICs) == 0
	})
	write(t, "/run/setting", "P2PCHECK=/none; P2PCHECK_SLURM=/usr/local/bin/slurm-p2p\n")
	k.Until("there is no plan", func() bool { _, err := os.Stat("/run/p2pcheck/node1.json"); return err != nil })
	k.Resume("node1") // the check has drained it
	none(t, srun(k, nil, "--gres=gpu:1")[0], "no plan")
	write(t, "/run/setting", "P2PCHECK_SLURM=/none\n")
	none(t, srun(k, nil, "--gres=gpu:1")[0], "/none is not there")
	write(t, "/run/setting", "exit 3\n")
	none(t, srun(k, nil, "--gres=gpu:1")[0], "ended with 3")
}

// gres.conf lists the GPUs in another order than that of their PCI addresses: which GPU CUDA uses for Slurm's number is
// not known then, but where the job has all of them.
func TestNICsOfAnotherOrder(t *testing.T) {
	k := withGPUs(t, "case-08-emerald-rapids", 2, []string{"NodeName=node1 Name=gpu File=/dev/nvidia1", "NodeName=node1 Name=gpu File=/dev/nvidia0"})
	if p := plan(t); p.Order != "" || p.Unordered == "" || p.GPUs[0].File != "/dev/nvidia1" {
		t.Errorf("%+v", p)
	}
	none(t, srun(k, nil, "--gres=gpu:1")[0], "gres.conf does not list all NVIDIA GPUs of the node by PCI address")
}

// Three GPUs and two NICs, each of which reaches all: two jobs of the three share a NIC, and no more. The plan says so.
func TestNICsShared(t *testing.T) {
	k := withGPUs(t, "ucx-6327-v100", 3, nil)
	p := plan(t)
	count := map[string]int{}
	for _, g := range p.GPUs {
		if len(g.NICs) != 1 {
			t.Errorf("%+v", g)
			continue
		}
		count[g.NICs[0].Name]++
	}
	if len(count) != 2 {
		text, _ := json.Marshal(p)
		t.Errorf("%s", text)
	}
	for _, g := range p.GPUs {
		if g.Shared != (count[g.NICs[0].Name] > 1) {
			t.Errorf("%+v of %v", g, count)
		}
	}
	if x := srun(k, nil, "--gres=gpu:3")[0]; len(strings.Split(x.env["NCCL_IB_HCA"], ",")) != 2 || len(strings.Split(x.env["GPURDMA_PAIRS"], ",")) != 3 {
		t.Errorf("%v", x)
	}
}

// A job that runs keeps its NIC: while the NIC's port is down, and when it is up again, no other GPU gets it.
func TestNICsOfRunningJobs(t *testing.T) {
	k := withGPUs(t, "hgx", 8, nil)
	good := Machine(t, "hgx")
	down := Machine(t, "hgx")
	write(t, down+"/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n")
	_ = os.Remove("/tmp/runs.end")
	script(t, "/tmp/runs.sh", print+"until [ -e /tmp/runs.end ]; do sleep 0.1; done")
	id := submit(k, "--gres=gpu:1", "/tmp/runs.sh")
	k.Until("the job runs", func() bool { return job(k, id)["JobState"] == "RUNNING" })
	used := ""
	for line := range strings.Lines(k.must("scontrol", "--details", "show", "node", "node1")) {
		if _, value, ok := strings.Cut(line, "GresUsed="); ok {
			used = strings.TrimSpace(value)
		}
	}
	if inUse, err := gres.InUse("GresUsed=" + used); err != nil || !inUse(0) {
		t.Errorf("scontrol has other words for a GPU that a job has: %q, %v", used, err)
	}
	t.Log("GresUsed=" + used)
	Becomes(t, "node1", down)
	k.Until("the plan has a NIC less", func() bool { g := plan(t).GPUs[0]; return slices.Equal(g.Held, []string{"mlx5_0"}) })
	Becomes(t, "node1", good)
	k.Until("the plan has it again", func() bool {
		g := plan(t).GPUs[0]
		return len(g.Held) == 0 && len(g.NICs) == 1 && g.NICs[0].Name == "mlx5_0"
	})
	for _, g := range plan(t).GPUs[1:] {
		if slices.ContainsFunc(g.NICs, func(n nicplan.NIC) bool { return n.Name == "mlx5_0" }) {
			t.Errorf("%+v has the NIC of a job that runs", g)
		}
	}
	// The job ends, and nothing is held any more.
	write(t, "/tmp/runs.end", "")
	k.Until("the job has ended", func() bool { return job(k, id)["JobState"] == "COMPLETED" })
	k.Until("node1 is idle", func() bool { return k.Node("node1").State == "IDLE" })
	Becomes(t, "node1", down)
	k.Until("no GPU has the NIC", func() bool {
		return !slices.ContainsFunc(plan(t).GPUs, func(g nicplan.GPU) bool { return len(g.Held) > 0 || len(g.NICs) != 1 || g.NICs[0].Name == "mlx5_0" })
	})
}

// A job on two nodes of different machines: the steps on each have the NICs of their own node, not those of the node
// that runs the batch script.
func TestNICsOfTwoNodes(t *testing.T) {
	Need(t)
	devices(t, "/dev/nvidia0", "/dev/nvidia1")
	Becomes(t, "node1", Machine(t, "case-08-emerald-rapids"))
	Becomes(t, "node2", Machine(t, "wrong-socket"))
	k := Start(t, Config{Nodes: []string{"node1", "node2"}, Lines: SlurmConf(t, "Prolog"), GPUs: 2, Conf: P2PCheckConf(t),
		Gres: []string{"NodeName=node[1-2] Name=gpu File=/dev/nvidia[0-1]"}})
	for _, n := range []string{"node1", "node2"} {
		k.Until("there is a plan", func() bool { _, err := os.Stat("/run/p2pcheck/" + n + ".json"); return err == nil })
	}
	if planOf(t, "node1").GPUs[0].PCI == planOf(t, "node2").GPUs[0].PCI {
		t.Fatal("the two machines have their GPUs in the same places")
	}
	script(t, "/tmp/two.sh", "srun --label -N2 -n2 sh -c \""+print+"\"")
	id := submit(k, "-N2", "-n2", "--gres=gpu:1", "/tmp/two.sh")
	k.Until("the job has run", func() bool { return job(k, id)["JobState"] == "COMPLETED" })
	out, err := os.ReadFile("/tmp/job-" + id + ".out")
	if err != nil {
		t.Fatal(err)
	}
	list := tasks(string(out))
	if len(list) != 2 || list[0].env["SLURMD_NODENAME"] == list[1].env["SLURMD_NODENAME"] {
		t.Fatalf("%s", out)
	}
	for _, x := range list {
		number, err := strconv.Atoi(x.env["SLURM_STEP_GPUS"])
		if err != nil {
			t.Fatalf("%s", out)
		}
		g := planOf(t, x.env["SLURMD_NODENAME"]).GPUs[number]
		if want := g.PCI + "=" + g.NICs[0].Name; x.env["GPURDMA_PAIRS"] != want || x.env["NCCL_IB_HCA"] != "="+g.NICs[0].Name {
			t.Errorf("want %s: %v", want, x)
		}
	}
}
