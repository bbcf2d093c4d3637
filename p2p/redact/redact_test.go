// SPDX-License-Identifier: Apache-2.0

package redact

import "testing"

// The release keeps what tells kernels of distributions apart, and nothing else.
func TestRelease(t *testing.T) {
	for text, want := range map[string]string{
		"6.12.117+deb12-amd64\n":            "6.12.117+deb12-amd64\n",
		"6.1.0-27-cloud-amd64":              "6.1.0-27-cloud-amd64",
		"5.14.0-427.13.1.el9_4.x86_64":      "5.14.0-427.13.1.el9_4.x86_64",
		"5.14.0-acme.el9.x86_64":            "5.14.0-kernel-a.el9.x86_64",
		"6.8.0-1015-nvidia-64k":             "6.8.0-1015-nvidia-64k",
		"6.4.0-150600.23.25-default":        "6.4.0-150600.23.25-default",
		"6.11.0-9.fc40.x86_64":              "6.11.0-9.fc40.x86_64",
		"5.4.286-235.386.amzn2.x86_64":      "5.4.286-235.386.amzn2.x86_64",
		"6.6.57.1-7.cm2":                    "6.6.57.1-7.cm2",
		"7.2.12-10.203.33.77":               "7.2.12-kernel-a",
		"6.18.44-fc-v657-gpu":               "6.18.44-kernel-a",
		"6.12.9-alice+":                     "6.12.9-kernel-a+",
		"6.12.9-alice-bob-amd64":            "6.12.9-kernel-a-amd64",
		"6.12.0-rc3":                        "6.12.0-rc3",
		"6.13.0-061300rc7.20250112-generic": "6.13.0-kernel-a.20250112-generic",
	} {
		if got := New().release(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Names have replacements that keep what libraries compare: the number at the end, and what the names of several devices begin with.
func TestNames(t *testing.T) {
	r := New()
	for _, name := range []string{"mlx5_0", "mlx5_bond_0", "bnxt_re1", "ibp65s0f0", "rocep23s0f1", "rdmap0s6", "irdma0", "efa_0"} {
		if got := r.name(ofRDMA, name); got != name {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, name := range []string{"eth0", "enp65s0f0np0", "ens1f1", "ib0", "ibp65s0", "bond0", "lo"} {
		if got := r.name(ofNet, name); got != name {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, c := range []struct{ name, want string }{
		{"storage0", "rdma-a0"}, {"storage1", "rdma-a1"}, {"compute12", "rdma-b12"}, {"storage0", "rdma-a0"}, {"storage", "rdma-a"},
		{"rocexa088c20300000001", "rdma-c"}, {"rocexa088c20300000002", "rdma-d"}, {"vlan1234", "rdma-e"},
	} {
		if got := r.name(ofRDMA, c.name); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got, want := r.value("=storage0:1,storage,^mlx5_1,10.1.2.3,fe80::1,2001:db8::5,secret"), "=rdma-a0:1,rdma-a,^mlx5_1,word-a,fword-b,200word-c,word-d"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	seen := map[string]bool{}
	for n := range 200 {
		l := letters(n)
		for other := range seen {
			if len(other) <= len(l) && l[:len(other)] == other || len(l) < len(other) && other[:len(l)] == l {
				t.Fatalf("%s and %s", l, other)
			}
		}
		seen[l] = true
	}
}

// A product's name is kept if makers of hardware sell it.
func TestProducts(t *testing.T) {
	for _, name := range []string{
		"NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA GB200", "NVIDIA GH200 480GB", "NVIDIA B300 SXM6 AC",
		"Tesla V100-SXM2-32GB", "Tesla T4", "Quadro RTX 8000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX 6000 Ada Generation", "NVIDIA GeForce RTX 4090", "GRID A100-40C", "NVIDIA L40S",
		"NVIDIA A10G", "NVIDIA GB10", "NVIDIA Thor", "NVIDIA TITAN RTX", "NVIDIA CMP 170HX", "NVIDIA DRIVE P2021", "GRID K520", "NVIDIA RTX A6000", "NVIDIA A800-SXM4-80GB", "NVIDIA_DGX_Spark", "NVIDIA A40-48Q", "NVIDIA A10-4Q", "NVIDIA A16-2B",
	} {
		if got := New().product(name); got != name {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got, want := New().product("Acme Blade 7000 of Alice"), "word-a word-b 7000 word-c word-d"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestRelative(t *testing.T) {
	for _, c := range []struct{ dir, name, want string }{
		{"", "usr/lib", "usr/lib"}, {".", "usr/lib", "usr/lib"}, {"a", "b", "../b"}, {"a/b", "a/c", "../c"}, {"a/b", "a/b/c", "c"}, {"a/b/c", "d/e", "../../../d/e"}, {"a/b", "a", "../../a"},
	} {
		if got := Relative(c.dir, c.name); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.dir, c.name, got, c.want)
		}
	}
}
