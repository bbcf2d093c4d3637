// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpurdma/gpurdma/deploy/dra/cdi"
	"github.com/gpurdma/gpurdma/deploy/dra/memlock"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/plugin"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/proofs"
)

type options struct {
	node, pod, kubeconfig, kubelet, cdi, root, proofs string
	partners                                          int
	every                                             time.Duration
	software                                          bool
	published

	live                 bool
	liveEvery, liveAgain time.Duration
	memlock              string
	memlockGiven         bool
	dev                  string
}

func defaults() *options {
	return &options{
		node: os.Getenv("NODE_NAME"), pod: os.Getenv("POD_UID"), kubelet: "/var/lib/kubelet", cdi: "/var/run/cdi", root: "/",
		partners: 3, every: time.Minute, liveEvery: 5 * time.Minute, liveAgain: 24 * time.Hour, memlock: memlock.Unlimited.String(),
		published: published{what: asPairs, pcieRoot: ownRoot, vendors: []string{"gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com"}},
	}
}

func (o *options) check() error {
	switch {
	case o.node == "":
		return errors.New("the name of the node is not known: give --node-name, or NODE_NAME from the pod's spec.nodeName")
	case o.partners < 1:
		return fmt.Errorf("--partners must be 1 or more, not %d", o.partners)
	case o.every < time.Second:
		return fmt.Errorf("--every must be 1s or more, not %v", o.every)
	case o.liveEvery < time.Second:
		return fmt.Errorf("--live-every must be 1s or more, not %v", o.liveEvery)
	case o.liveAgain < o.liveEvery:
		return fmt.Errorf("--live-again must be --live-every (%v) or more, not %v", o.liveEvery, o.liveAgain)
	}
	if _, err := memlock.ParseFlag(o.memlock); err != nil {
		return fmt.Errorf("--memlock: %w", err)
	}
	return errors.Join(o.published.check(), o.checkLive(o.live))
}

// run is the driver until the context ends, or until it cannot go on.
func run(ctx context.Context, o *options) error {
	if err := o.check(); err != nil {
		return err
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	boot, err := os.ReadFile(filepath.Join(o.root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return err
	}
	registry, data := filepath.Join(o.kubelet, "plugins_registry"), filepath.Join(o.kubelet, "plugins", resources.Driver)
	if _, err := os.Stat(registry); err != nil {
		return fmt.Errorf("--kubelet-dir: no kubelet looks for drivers there: %w", err)
	}
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	if o.live && o.proofs == "" {
		o.proofs = filepath.Join(data, "proofs.json")
	}
	hooks, err := o.hooks(data)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	p, err := plugin.New(plugin.Config{
		Node: o.node, Look: o.look, State: filepath.Join(data, "state.json"), Boot: strings.TrimSpace(string(boot)), CDI: cdi.Dir(o.cdi), Hooks: hooks, Live: o.prover(client),
		Partners: o.partners, Beside: o.beside(client, o.node), Every: o.every, Log: slog.Default(), Fatal: fail,
	})
	if err != nil {
		return err
	}
	with := []kubeletplugin.Option{
		kubeletplugin.DriverName(resources.Driver), kubeletplugin.NodeName(o.node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(data),
	}
	if o.pod != "" {
		with = append(with, kubeletplugin.RollingUpdate(types.UID(o.pod)))
	}
	helper, err := kubeletplugin.Start(ctx, p, with...)
	if err != nil {
		return err
	}
	defer helper.Stop()
	p.Publish = helper.PublishResources
	if p.Beside != nil {
		go answer(ctx, client, o.node, p, fail)
	}
	go o.watch(ctx, p)
	p.Run(ctx)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// client returns a client of the API server.
func (o *options) client() (kubernetes.Interface, error) {
	if o.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return kubernetes.NewForConfig(config)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("this program does not run in a pod: give --kubeconfig")
	}
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// look reads the machine as it is now.
func (o *options) look(context.Context) (node.Node, error) {
	kept, err := o.kept()
	root := cmp.Or(o.root, "/")
	n, err2 := node.Look(machine.Open(root), node.Options{Kept: kept, File: o.proofs, Software: o.software, Dev: cmp.Or(o.dev, filepath.Join(root, "dev"))})
	return n, errors.Join(err, err2)
}

// kept reads the proofs. Before the first one there is no file.
func (o *options) kept() (s proofs.Store, err error) {
	if o.proofs == "" {
		return s, nil
	}
	f, err := os.Open(o.proofs)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	return proofs.Read(f)
}
