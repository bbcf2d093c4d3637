// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpurdma/gpurdma/deploy/dra/binding"
	"github.com/gpurdma/gpurdma/deploy/dra/cdi"
	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/kubernetes/kubelet"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/plugin"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// boot is the ID of the start of all machines.
const boot = "boot-1"

// driverLabel is the label of the nodes on which the DaemonSet has a pod.
const driverLabel = "p2p.gpurdma.github.io/driver"

// machine is a node of the cluster, with a kubelet and a driver.
type machine struct {
	name    string
	dir     string
	short   string // the kubelet's directory: a socket's name has 107 bytes at most
	kubelet *kubelet.Kubelet
	client  kubernetes.Interface // the driver's, by the token of its pod
	pod     *core.Pod            // the driver's, which the DaemonSet has made
	every   time.Duration
	beside  *plugin.Beside    // the driver publishes NICs; nil where it publishes pairs
	gpus    map[string]string // IDs by the names of the devices of the vendor's driver

	mu     sync.Mutex
	node   *node.Node
	errors []string // of the driver, which it has logged

	stop func() // the driver
}

// addMachine adds a node with some devices, until the test ends. Its driver has the rights of the DaemonSet's pod.
func addMachine(t *testing.T, name string, n *node.Node, every time.Duration) *machine {
	t.Helper()
	m := addKubelet(t, name)
	m.every = every
	m.has(t, n)
	m.startDriver(t)
	return m
}

// has gives a machine its devices.
func (m *machine) has(t *testing.T, n *node.Node) {
	t.Helper()
	copied := *n
	copied.Dev = filepath.Join(m.dir, "dev")
	copied.Pairs = slices.Clone(n.Pairs)
	m.node = &copied
	addFiles(t, m.dir, n)
}

// addKubelet adds a node on which no driver runs yet.
func addKubelet(t *testing.T, name string) *machine {
	t.Helper()
	short, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	m := &machine{name: name, dir: t.TempDir(), short: short}
	addNode(t, name, map[string]string{driverLabel: ""})
	m.startKubelet(t)
	t.Cleanup(func() { m.kubelet.Stop() })
	m.pod = driverPod(t, name)
	m.client = m.asDriver(t)
	return m
}

func (m *machine) startKubelet(t *testing.T) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Kubelet(m.name))
	if err == nil {
		m.kubelet, err = kubelet.Start(context.Background(), client, m.name, m.short)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) path(names ...string) string {
	return filepath.Join(append([]string{m.dir}, names...)...)
}

// addFiles makes the device files of a machine below a directory, as ordinary files: the driver only looks whether they are there.
func addFiles(t *testing.T, dir string, n *node.Node) {
	t.Helper()
	var files []string
	for _, g := range n.GPUs {
		files = append(files, g.Files.Needed...)
	}
	for _, x := range n.NICs {
		files = append(files, x.Files.Needed...)
	}
	for _, name := range files {
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err == nil {
			err = os.WriteFile(at, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// driverPod waits for the DaemonSet's pod on a node.
func driverPod(t *testing.T, node string) (pod *core.Pod) {
	t.Helper()
	wait(t, "the driver's pod on "+node, func() (bool, string) {
		all, err := admin.CoreV1().Pods("dra-p2p").List(t.Context(), meta.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil || len(all.Items) == 0 {
			return false, fmt.Sprintf("%v, %v", all, err)
		}
		pod = &all.Items[0]
		return true, ""
	})
	return pod
}

// token is a token as the kubelet gives to a pod.
func token(t *testing.T, pod *core.Pod) string {
	t.Helper()
	r := &authentication.TokenRequest{}
	if pod != nil {
		r.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	r, err := admin.CoreV1().ServiceAccounts("dra-p2p").CreateToken(t.Context(), "dra-p2p", r, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// asDriver returns a client with the rights of the driver's pod.
func (m *machine) asDriver(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(cluster.Token(token(t, m.pod)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// look looks at the machine as it is now.
func (m *machine) look(context.Context) (node.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := *m.node
	n.Pairs = slices.Clone(n.Pairs)
	return n, nil
}

// set makes a pair what it is not.
func (m *machine) set(t *testing.T, gpu, nic string, o chain.Outcome, why string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.node.Pairs, func(p node.Pair) bool { return p.GPU == gpu && p.NIC == nic })
	if i < 0 {
		t.Fatalf("there is no pair %s, %s", gpu, nic)
	}
	m.node.Pairs[i].Outcome, m.node.Pairs[i].Why = o, why
}

// keeper keeps what a driver logs as an error.
type keeper struct {
	slog.Handler
	m *machine
}

func (k keeper) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool {
			text += " " + a.String()
			return true
		})
		k.m.mu.Lock()
		k.m.errors = append(k.m.errors, text)
		k.m.mu.Unlock()
	}
	return k.Handler.Handle(ctx, r)
}

// said returns what the driver has logged as errors since the last call.
func (m *machine) said() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.errors
	m.errors = nil
	return list
}

// startDriver starts the driver, as the command does.
func (m *machine) startDriver(t *testing.T) {
	t.Helper()
	data := filepath.Join(m.short, "plugins", resources.Driver)
	if err := os.MkdirAll(data, 0o750); err != nil {
		t.Fatal(err)
	}
	ctx, fail := context.WithCancelCause(context.Background())
	log := slog.New(keeper{slog.NewTextHandler(io.Discard, nil), m})
	p, err := plugin.New(plugin.Config{
		Node: m.name, Look: m.look, State: m.state(), Boot: boot, CDI: cdi.Dir(m.path("cdi")),
		Partners: 3, Beside: m.beside, Every: m.every, Log: log, Fatal: fail,
	})
	if err != nil {
		t.Fatal(err)
	}
	helper, err := kubeletplugin.Start(ctx, p, kubeletplugin.DriverName(resources.Driver), kubeletplugin.NodeName(m.name), kubeletplugin.KubeClient(m.client),
		kubeletplugin.RegistrarDirectoryPath(kubelet.Registry(m.kubelet.Dir)), kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RollingUpdate(m.pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	p.Publish = helper.PublishResources
	var done sync.WaitGroup
	done.Go(func() { p.Run(ctx) })
	if m.beside != nil {
		c := binding.Controller{Client: m.client, Pool: m.name, Agree: p.Agree, Log: log}
		done.Go(func() {
			if err := c.Run(ctx); err != nil {
				fail(err)
			}
		})
	}
	m.stop = sync.OnceFunc(func() {
		if err := context.Cause(ctx); err != nil {
			m.mu.Lock()
			m.errors = append(m.errors, "the driver gave up: "+err.Error())
			m.mu.Unlock()
		}
		fail(errors.New("the test ends it"))
		done.Wait()
		helper.Stop()
	})
	t.Cleanup(m.stop)
}

// state is the driver's file.
func (m *machine) state() string {
	return filepath.Join(m.short, "plugins", resources.Driver, "state.json")
}

// known returns the pairs of a device.
func (m *machine) known(t *testing.T, device string) []pairs.Pair {
	t.Helper()
	s, err := checkpoint.Read(m.state(), boot)
	if err != nil || len(s.Known[device]) == 0 {
		t.Fatalf("%s is given to a pod on %s, and was not published there; %v", device, m.name, err)
	}
	return s.Known[device]
}

// specifications returns the names of the files for the container's runtime.
func (m *machine) specifications(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(m.path("cdi", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// slicesOf returns the driver's slices of a node, as the API server has them.
func slicesOf(t *testing.T, node string) []api.ResourceSlice {
	t.Helper()
	all, err := admin.ResourceV1().ResourceSlices().List(t.Context(), meta.ListOptions{FieldSelector: "spec.nodeName=" + node + ",spec.driver=" + resources.Driver})
	if err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// published waits until a device of a machine is as it should.
func (m *machine) published(t *testing.T, device string, as func(api.Device) bool) {
	t.Helper()
	wait(t, device+" of "+m.name+" is published", func() (bool, string) {
		var last string
		for _, s := range slicesOf(t, m.name) {
			for _, d := range s.Spec.Devices {
				if d.Name == device {
					if as(d) {
						return true, ""
					}
					last = fmt.Sprintf("%+v", d)
				}
			}
		}
		return false, last
	})
}
