// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// double makes CUDA's library the double that `make doubles` builds, with GPUs at the addresses.
func double(t *testing.T, variant, addresses string, knobs ...string) {
	t.Helper()
	knobs = append(knobs, "DOUBLE_PCI="+addresses, "DOUBLE_DEVICES="+strconv.Itoa(len(strings.Split(addresses, ","))))
	testenv.Double(t, "GPURDMA_LIBCUDA", "doubles/"+variant+"/libcuda.so.1", knobs...)
}

// vendorOf finds a vendor by its name.
func vendorOf(t *testing.T, name string) vendor {
	t.Helper()
	v, err := chosen(name)
	if err != nil || len(v) != 1 {
		t.Fatal(v, err)
	}
	return v[0]
}

// hgx is a machine with H100s, and the addresses of two of them.
func hgx(t *testing.T, change func(*testenv.Tree)) (prediction, string, []string) {
	t.Helper()
	tree := testenv.HGX()
	if change != nil {
		change(&tree)
	}
	root := tree.Write(t)
	p, err := predict(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.gpus) < 2 || len(p.nics) < 2 || len(p.plain) == 0 {
		t.Fatalf("%d GPUs, %d NICs, %d displays", len(p.gpus), len(p.nics), len(p.plain))
	}
	return p, root, []string{p.gpus[0].Name, p.gpus[1].Name}
}

// proprietary makes NVIDIA's modules the proprietary ones.
func proprietary(tree *testenv.Tree) {
	tree.Files["sys/module/nvidia/taint"] = "POE\n"
	tree.Files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build\n"
}

// What CUDA's attributes say is compared with what the files lead to, GPU by GPU.
func TestAttributesOfDouble(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(*testenv.Tree)
		variant      string
		knobs        []string
		dmabuf, rdma string // the comparisons
	}{
		{"H100", nil, "cuda", nil, agrees, agrees},
		{"an H100 that denies dma-bufs", nil, "cuda", []string{"DOUBLE_CUDA_DMABUF=0"}, disagrees, agrees},
		{"an H100 that denies GPUDirect RDMA", nil, "cuda", []string{"DOUBLE_CUDA_RDMA=0"}, agrees, disagrees},
		{"proprietary modules", proprietary, "cuda", []string{"DOUBLE_CUDA_DMABUF=0"}, agrees, agrees},
		{"proprietary modules that export", proprietary, "cuda", nil, disagrees, agrees},
		{"a library before dma-bufs", nil, "cuda-old", nil, disagrees, agrees},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, at := hgx(t, c.change)
			double(t, c.variant, strings.Join(at, ","), c.knobs...)
			v := vendorOf(t, "cuda")
			a := v.ask(t.Context())
			if a.Error != "" || len(a.GPUs) != 2 {
				t.Fatalf("%+v", a)
			}
			rows := gpuRows(p, map[string]answers{"cuda": a}, []vendor{v})
			for _, gpu := range at {
				for key, want := range map[string]string{"(124)": c.dmabuf, "(116)": c.rdma} {
					i := slices.IndexFunc(rows, func(r row) bool {
						return strings.HasPrefix(r.Subject, gpu) && strings.HasSuffix(r.Question, key)
					})
					if i < 0 || rows[i].Compared != want {
						t.Errorf("%s, attribute %s: %+v, want %s", gpu, key, rows, want)
					}
				}
			}
			// The others are GPUs that the library does not list.
			last := rows[slices.IndexFunc(rows, func(r row) bool { return strings.HasPrefix(r.Subject, p.gpus[2].Name) })]
			if last.Compared != notAnswered || !strings.Contains(last.Seen, "does not list this GPU") {
				t.Errorf("%+v", last)
			}
		})
	}
}

// An export is an answer: yes if there is a dma-buf, no if the call that makes it fails. The
// double needs udmabuf for one. An allocation that fails is no answer.
func TestExportOfDouble(t *testing.T) {
	double(t, "cuda", "0000:13:00.0")
	a := vendorOf(t, "cuda").ask(t.Context())
	if len(a.GPUs) != 1 {
		t.Fatalf("%+v", a)
	}
	got := a.GPUs[0].Answers[keyExport]
	if _, err := os.Stat("/dev/udmabuf"); err == nil {
		if got.Says != yes || !strings.Contains(got.Detail, "a dma-buf of") {
			t.Errorf("with udmabuf: %+v", got)
		}
	} else if got.Says != no {
		t.Errorf("without udmabuf: %+v", got)
	}
	t.Setenv("DOUBLE_FAIL", "cuMemGetHandleForAddressRange=801")
	if got := export(t.Context(), "cuda:0"); got.Says != no || !strings.Contains(got.Detail, "801") {
		t.Errorf("a refused export: %+v", got)
	}
	t.Setenv("DOUBLE_FAIL", "cuMemAlloc_v2=2")
	if got := export(t.Context(), "cuda:0"); got.Says != "" || !strings.Contains(got.Detail, "no memory to export") {
		t.Errorf("an allocation that failed: %+v", got)
	}
	t.Setenv("DOUBLE_CUDA_DMABUF", "0")
	if got := vendorOf(t, "cuda").ask(t.Context()).GPUs[0].Answers[keyExport]; got.Says != "" || !strings.Contains(got.Detail, "not tried") {
		t.Errorf("where the attribute is 0: %+v", got)
	}
}

// TestVMExportOfDouble runs where udmabuf is.
//
//testbed:kernel 7.2 6.12
func TestVMExportOfDouble(t *testing.T) {
	testenv.VM(t)
	if _, err := os.Stat("/dev/udmabuf"); err != nil {
		t.Fatal(err)
	}
	TestExportOfDouble(t)
}

// A GPU that a library lists and no file shows has an answer, and no prediction.
func TestGPUWithoutFiles(t *testing.T) {
	p, _, _ := hgx(t, nil)
	v := vendorOf(t, "cuda")
	said := answers{GPUs: []gpu{{PCI: "0000:ff:00.0", Spec: "cuda:0", Answers: map[string]answer{keyRDMA: {Says: yes}}}}}
	rows := gpuRows(p, map[string]answers{"cuda": said}, []vendor{v})
	i := slices.IndexFunc(rows, func(r row) bool {
		return r.Subject == "0000:ff:00.0 cuda:0" && strings.HasSuffix(r.Question, "(116)")
	})
	if i < 0 || rows[i].Compared != notPredicted {
		t.Errorf("%+v", rows)
	}
}

func TestChosen(t *testing.T) {
	for _, c := range []struct {
		names string
		want  int
		bad   bool
	}{{"", 3, false}, {"rocm", 1, false}, {"cuda,levelzero", 2, false}, {"cuda rocm", 2, false}, {"opencl", 0, true}} {
		if v, err := chosen(c.names); len(v) != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %d, %v", c.names, len(v), err)
		}
	}
}
