// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

// Kubelet is the kubelet of a node.
type Kubelet struct {
	Node string
	Dir  string // "/var/lib/kubelet" on a node

	client  kubernetes.Interface
	manager *dra.Manager
	pods    listers.PodLister
	wake    chan struct{} // gets a value when a pod or the health of a device has changed
	end     context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	started map[types.UID][]string // CDI devices of each pod that has started
	refused map[types.UID]error    // why a pod has not started, or has not ended
}

// Registry is the directory in which the kubelet of a directory looks for drivers.
func Registry(dir string) string { return filepath.Join(dir, "plugins_registry") }

// Start starts the kubelet of a node. It goes on where an earlier one with the same directory has ended.
func Start(ctx context.Context, client kubernetes.Interface, node, dir string) (*Kubelet, error) {
	if err := os.MkdirAll(Registry(dir), 0o750); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	k := &Kubelet{Node: node, Dir: dir, client: client, wake: make(chan struct{}, 1), end: end, started: map[types.UID][]string{}, refused: map[types.UID]error{}}
	if err := k.start(ctx); err != nil {
		end()
		return nil, err
	}
	return k, nil
}

func (k *Kubelet) start(ctx context.Context) (err error) {
	logger := klog.FromContext(ctx)
	if k.manager, err = dra.NewManager(logger, k.client, k.Dir); err != nil {
		return err
	}
	informer := informers.NewSharedInformerFactoryWithOptions(k.client, 0, informers.WithTweakListOptions(func(o *meta.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", k.Node).String()
	}))
	k.pods = informer.Core().V1().Pods().Lister()
	if _, err := informer.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { k.again() }, UpdateFunc: func(any, any) { k.again() }, DeleteFunc: func(any) { k.again() },
	}); err != nil {
		return err
	}
	informer.Start(ctx.Done())
	for kind, ok := range informer.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("the %v of node %s cannot be listed", kind, k.Node)
		}
	}
	getNode := func(ctx context.Context) (*core.Node, error) {
		return k.client.CoreV1().Nodes().Get(ctx, k.Node, meta.GetOptions{})
	}
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	if err := k.manager.Start(ctx, k.active, getNode, ready); err != nil {
		return err
	}
	plugins := pluginmanager.NewPluginManager(Registry(k.Dir), &record.FakeRecorder{})
	plugins.AddHandler(registration.DRAPlugin, k.manager.GetWatcherHandler())
	k.done.Go(func() { plugins.Run(ctx, ready, ctx.Done()) })
	k.done.Go(func() { k.run(ctx) })
	return nil
}

// Stop ends the kubelet's process, so to speak: pods and what they have stay.
func (k *Kubelet) Stop() {
	k.end()
	k.done.Wait()
	k.manager.Stop()
}

func (k *Kubelet) again() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// active returns the pods that have not ended.
func (k *Kubelet) active() []*core.Pod {
	all, err := k.pods.List(labels.Everything())
	if err != nil {
		panic(err) // a lister has none
	}
	var list []*core.Pod
	for _, p := range all {
		if !over(p) {
			list = append(list, p)
		}
	}
	return list
}

func over(p *core.Pod) bool {
	return p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed
}

// run starts and ends pods. What fails is tried again.
func (k *Kubelet) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		all, err := k.pods.List(labels.Everything())
		if err != nil {
			panic(err) // a lister has none
		}
		refused := map[types.UID]error{}
		for _, p := range all {
			err := k.sync(ctx, p)
			switch {
			case ctx.Err() != nil:
				return
			case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the pod has changed, and comes again
			case err != nil:
				refused[p.UID] = err
			}
		}
		k.mu.Lock()
		k.refused = refused
		k.mu.Unlock()
		select {
		case <-k.wake:
		case <-k.manager.Updates():
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sync does what a pod needs next.
func (k *Kubelet) sync(ctx context.Context, p *core.Pod) error {
	if p.DeletionTimestamp != nil || over(p) {
		if err := k.manager.UnprepareResources(ctx, p); err != nil || over(p) && p.DeletionTimestamp == nil {
			return err
		}
		now := int64(0)
		return k.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, meta.DeleteOptions{GracePeriodSeconds: &now, Preconditions: meta.NewUIDPreconditions(string(p.UID))})
	}
	k.mu.Lock()
	_, started := k.started[p.UID]
	k.mu.Unlock()
	if !started {
		if err := k.manager.PrepareResources(ctx, p); err != nil {
			return err
		}
		devices, err := k.devices(p)
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.started[p.UID] = devices
		k.mu.Unlock()
	}
	return k.report(ctx, p)
}

// devices returns the CDI devices that the container's runtime is told.
func (k *Kubelet) devices(p *core.Pod) (list []string, err error) {
	for i := range p.Spec.Containers {
		info, err := k.manager.GetResources(p, &p.Spec.Containers[i])
		if err != nil {
			return nil, err
		}
		for _, d := range info.CDIDevices {
			list = append(list, d.Name)
		}
	}
	return list, nil
}

// report writes the status of a pod that runs, with the health of its devices.
func (k *Kubelet) report(ctx context.Context, p *core.Pod) error {
	q := p.DeepCopy()
	s := &q.Status
	old := s.ContainerStatuses
	s.Phase = core.PodRunning
	s.ContainerStatuses = nil
	for _, c := range p.Spec.Containers {
		status := core.ContainerStatus{Name: c.Name, Ready: true, State: core.ContainerState{Running: &core.ContainerStateRunning{}}}
		if i := slices.IndexFunc(old, func(x core.ContainerStatus) bool { return x.Name == c.Name }); i >= 0 {
			status = old[i]
		}
		s.ContainerStatuses = append(s.ContainerStatuses, status)
	}
	k.manager.UpdateAllocatedResourcesStatus(klog.FromContext(ctx), q, s)
	if equality.Semantic.DeepEqual(&p.Status, s) {
		return nil
	}
	_, err := k.client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, q, meta.UpdateOptions{})
	return err
}

// Devices returns the CDI devices of a pod, and whether it has started.
func (k *Kubelet) Devices(pod types.UID) ([]string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, ok := k.started[pod]
	return list, ok
}

// Refused returns why a pod has not started, or has not ended.
func (k *Kubelet) Refused(pod types.UID) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused[pod]
}

// Failures returns all that was refused last.
func (k *Kubelet) Failures() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	for uid, e := range k.refused {
		err = errors.Join(err, fmt.Errorf("pod %s: %w", uid, e))
	}
	return err
}
