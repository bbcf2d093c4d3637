// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpurdma/gpurdma/deploy/dra/kubernetes/kubelet"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/internal/testenv"
	hardware "github.com/gpurdma/gpurdma/p2p/machine"
)

// command builds cmd/dra-p2p, once.
var command = sync.OnceValues(func() (string, error) {
	at := filepath.Join(logs, "dra-p2p")
	out, err := exec.Command("go", "build", "-C", "..", "-o", at, "./cmd/dra-p2p").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return at, err
})

// driver is a process of the command.
type driver struct {
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{}
	err  error
}

// run starts the command, which ends with the test.
func (m *machine) run(t *testing.T, pod types.UID, more ...string) *driver {
	t.Helper()
	program, err := command()
	if err != nil {
		t.Fatal(err)
	}
	config := m.path("driver.kubeconfig")
	if err := cluster.WriteKubeconfig(config, cluster.Token(token(t, m.pod))); err != nil {
		t.Fatal(err)
	}
	d := &driver{done: make(chan struct{})}
	d.cmd = exec.Command(program, append([]string{"--kubeconfig=" + config, "--kubelet-dir=" + m.kubelet.Dir, "--cdi-dir=" + m.path("cdi"), "--root=" + m.path("root"), "--every=1s"}, more...)...)
	d.cmd.Env = append(os.Environ(), "NODE_NAME="+m.name, "POD_UID="+string(pod))
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.done
		if t.Failed() {
			t.Logf("the driver said:\n%s", &d.log)
		}
	})
	return d
}

// end ends the command as the kubelet ends a container.
func (d *driver) end(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-d.done
	if d.err != nil {
		t.Errorf("after SIGTERM: %v\n%s", d.err, &d.log)
	}
}

// addTree adds a node whose files are those of a machine of the corpus. No driver runs there yet.
func addTree(t *testing.T, name, machineName string) *machine {
	t.Helper()
	m := addKubelet(t, name)
	all := testenv.Corpus(t)
	i := slices.IndexFunc(all, func(c testenv.CorpusMachine) bool { return c.Name == machineName })
	if i < 0 {
		t.Fatal("no machine", machineName)
	}
	root := m.path("root")
	if err := os.Symlink(all[i].Tree.Write(t), root); err != nil {
		t.Fatal(err)
	}
	id := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	err := os.MkdirAll(filepath.Dir(id), 0o755)
	if err == nil {
		err = os.WriteFile(id, []byte(boot+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Look(hardware.Open(root), node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	addFiles(t, root, &n)
	m.node = &n
	return m
}

// The command itself, with the rights of the DaemonSet's pod: it publishes what the machine's files say, prepares
// claims, and notices a NIC that is gone. It is ended, killed, started again, and replaced by a new version that begins
// before the old one ends. Pods keep what they have, and at the end nothing is left.
func TestCommand(t *testing.T) {
	useCluster(t)
	addNamespace(t, "command", classes())
	m := addTree(t, "command", "dgx-h100")
	d := m.run(t, m.pod.UID)
	first := m.tries(t, "command", "first")
	had, _ := m.kubelet.Devices(first.UID)
	if len(had) != 1 || len(m.specifications(t)) != 1 {
		t.Fatalf("the runtime is told %q, and has %v", had, m.specifications(t))
	}
	d.end(t)
	d = m.run(t, m.pod.UID)
	second := m.tries(t, "command", "second")
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.done
	d = m.run(t, m.pod.UID)
	third := m.tries(t, "command", "third")

	newer := m.run(t, "newer-pod")
	wait(t, "the newer driver is there", func() (bool, string) {
		sockets, err := filepath.Glob(filepath.Join(kubelet.Registry(m.kubelet.Dir), "*"))
		return len(sockets) == 2, fmt.Sprint(sockets, err)
	})
	both := m.tries(t, "command", "while-both-run")
	d.end(t)
	fourth := m.tries(t, "command", "by-the-newer")

	running := []*core.Pod{first, second, third, both, fourth}
	if k := len(given(t, m)); k != len(running) || len(m.specifications(t)) != k {
		t.Errorf("%d pairs are given, %v", k, m.specifications(t))
	}
	// The NIC of the first pod goes.
	device := devicesOf(t, first)[0]
	pair := m.known(t, device)[0]
	name := m.node.NIC(pair.NIC).Name
	if err := os.RemoveAll(m.path("root", "sys/class/infiniband", name)); err != nil {
		t.Fatal(err)
	}
	m.published(t, device, tainted("gone"))
	if get(t, first).Status.Phase != core.PodRunning {
		t.Error("the pod with the NIC does not go on")
	}
	for _, p := range running {
		remove(t, p, false)
	}
	if left := m.specifications(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	newer.end(t)
	if strings.Contains(newer.log.String(), "level=ERROR") {
		t.Errorf("the driver said:\n%s", &newer.log)
	}
}

// A GPU's device file that is not there refuses the pod, and says which file.
func TestCommandNoDeviceFile(t *testing.T) {
	useCluster(t)
	addNamespace(t, "no-file", classes())
	m := addTree(t, "no-file", "hgx")
	if err := os.RemoveAll(m.path("root", "dev")); err != nil {
		t.Fatal(err)
	}
	addFiles(t, m.path("elsewhere"), m.node)
	d := m.run(t, m.pod.UID)
	p := create(t, newPod("no-file", "refused", "pair", m.name))
	placed(t, p, true)
	wait(t, "the driver refuses", func() (bool, string) {
		err := m.kubelet.Refused(p.UID)
		return err != nil && strings.Contains(err.Error(), "device files"), fmt.Sprint(err)
	})
	d.end(t)
	d = m.run(t, m.pod.UID, "--dev-dir="+m.path("elsewhere", "dev"))
	runs(t, p, m)
	remove(t, p, false)
	d.end(t)
}

// A wrong flag, and a file that is not there, end the command with an error that names it.
func TestCommandMistakes(t *testing.T) {
	useCluster(t)
	m := addTree(t, "mistakes", "hgx")
	program, err := command()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--node-name="}, "--node-name"},
		{[]string{"--kubeconfig=/nowhere"}, "/nowhere"},
		{[]string{"--kubeconfig="}, "--kubeconfig"},
		{[]string{"--kubelet-dir=/nowhere"}, "--kubelet-dir"},
		{[]string{"--root=/nowhere"}, "/nowhere"},
		{[]string{"--partners=0"}, "--partners"},
		{[]string{"--every=1ms"}, "--every"},
		{[]string{"extra"}, "extra"},
	} {
		config := m.path("k.kubeconfig")
		if err := cluster.WriteKubeconfig(config, cluster.Token("wrong")); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"--node-name=mistakes", "--kubeconfig=" + config, "--kubelet-dir=" + m.kubelet.Dir, "--cdi-dir=" + m.path("cdi"), "--root=" + m.path("root")}, c.args...)
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "goroutine") {
			t.Errorf("%q: %v, %s", c.args, err, out)
		}
	}
}
