// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
)

// withKFD adds to a machine the render nodes of its AMD GPUs, and the kernel's topology of them, in which they have this
// order. It returns the addresses of the GPUs, sorted.
func withKFD(t *testing.T, root string, backwards bool) (gpus []string) {
	t.Helper()
	nvidia := filepath.Join(root, "proc/driver/nvidia") // which Machine has made
	links, err := filepath.Glob(filepath.Join(nvidia, "gpus/*"))
	if err != nil || len(links) == 0 {
		t.Fatal("no GPU", err)
	}
	if err := os.RemoveAll(nvidia); err != nil {
		t.Fatal(err)
	}
	for i, l := range links {
		gpus = append(gpus, filepath.Base(l))
		dir := filepath.Join(root, "sys/bus/pci/devices", gpus[i], "drm", fmt.Sprint("renderD", 128+i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	order := slices.Clone(gpus)
	if backwards {
		slices.Reverse(order)
	}
	for i, g := range append([]string{""}, order...) { // node 0 is the processor
		text := "simd_count 0\n"
		if g != "" {
			var domain, bus, device, function uint
			if _, err := fmt.Sscanf(g, "%x:%x:%x.%x", &domain, &bus, &device, &function); err != nil {
				t.Fatal(err)
			}
			text = fmt.Sprintf("simd_count 1216\nlocation_id %d\ndomain %d\n", bus<<8|device<<3|function, domain)
		}
		dir := filepath.Join(root, "sys/class/kfd/kfd/topology/nodes", fmt.Sprint(i))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "properties"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return gpus
}

// A node with eight AMD GPUs: each job has the NIC of its GPU where ROCm counts as Slurm does, and none where not.
func TestNICsOfAMD(t *testing.T) {
	Need(t)
	var files []string
	for i := range 8 {
		files = append(files, fmt.Sprint("/dev/dri/renderD", 128+i))
	}
	if err := os.MkdirAll("/dev/dri", 0o755); err != nil {
		t.Fatal(err)
	}
	devices(t, files...)
	root := Machine(t, "mi300x-bnxt-7.2")
	gpus := withKFD(t, root, false)
	Becomes(t, "node1", root)
	k := &Cluster{t: t}
	k.programs()
	lines := k.must("sh", "-c", "/usr/local/bin/p2pcheck --json --skip all --root /srv/node1 | /usr/local/bin/slurm-p2p gres --node node1 --type mi300x --root /srv/node1")
	k = Start(t, Config{Nodes: []string{"node1"}, Lines: SlurmConf(t, "Prolog"), Gres: strings.Split(lines, "\n"), GPUs: len(gpus), Type: "mi300x", Conf: P2PCheckConf(t)})
	k.Until("there is a plan", func() bool { _, err := os.Stat("/run/p2pcheck/node1.json"); return err == nil })
	p := plan(t)
	if p.Order != nicplan.KFDOrder || len(p.GPUs) != 8 || p.GPUs[0].Vendor != "amd" {
		t.Fatalf("%+v", p)
	}
	x := srun(k, nil, "--gres=gpu:mi300x:1")[0]
	if g := p.GPUs[0]; x.env["GPURDMA_PAIRS"] != g.PCI+"="+g.NICs[0].Name || x.env["CUDA_DEVICE_ORDER"] != "" || x.env["CUDA_VISIBLE_DEVICES"] != "" {
		t.Errorf("%v, and the plan has %+v", x, g)
	}
	backwards := Machine(t, "mi300x-bnxt-7.2")
	withKFD(t, backwards, true)
	Becomes(t, "node1", backwards)
	k.Until("the plan has no order", func() bool {
		p, err := nicplan.Read("/run/p2pcheck/node1.json")
		return err == nil && p.Order == ""
	})
	none(t, srun(k, nil, "--gres=gpu:1")[0], "gres.conf does not list the AMD GPUs as ROCm counts them")
}
