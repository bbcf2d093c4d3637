// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/gpurdma/gpurdma/deploy/dra/kubernetes/controlplane"
)

// plane is a control plane, in which a kustomization of deploy/kubernetes is applied.
type plane struct {
	name  string
	dir   func() string // of the kustomization
	gates string

	begin   sync.Once
	cluster *controlplane.Cluster
	admin   kubernetes.Interface
	ready   bool
}

// The control planes. Each starts with the first test that needs it, and runs until the last test has ended.
var (
	ofPairs = &plane{name: "pairs", dir: func() string { return base }}
	ofNICs  = &plane{name: "nics", dir: func() string { return nicsBase }}
	// ofLists has the alpha gates by which a NIC may list its partners. The other gate is off so that what a driver may
	// change in a claim's status is up to the policy of the kustomization alone.
	ofLists = &plane{name: "lists", dir: func() string { return listsBase },
		gates: "DRAListTypeAttributes=true,DRADerivedAttributes=true,DRAResourceClaimGranularStatusAuthorization=false"}
	planes = []*plane{ofPairs, ofNICs, ofLists}
)

// use makes it the control plane of a test.
func (p *plane) use(t *testing.T) {
	t.Helper()
	p.begin.Do(func() {
		c, err := controlplane.Start(context.Background(), filepath.Join(logs, p.name), p.gates)
		if err != nil {
			t.Fatal(err)
		}
		p.cluster, cluster = c, c
		if p.admin, err = kubernetes.NewForConfig(c.Admin()); err != nil {
			t.Fatal(err)
		}
		for _, o := range render(t, p.dir()) {
			if err := apply(t.Context(), o, false); err != nil {
				t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
		p.ready = true
	})
	if !p.ready {
		t.Fatalf("there is no control plane of %s: see the first test", p.name)
	}
	cluster, admin = p.cluster, p.admin
}
