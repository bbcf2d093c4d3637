// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/placement"
)

func (r row) String() string {
	on := runtime.FuncForPC(reflect.ValueOf(r.on).Pointer()).Name()
	return fmt.Sprintf("%s=%s on %s", r.name, r.value, on[strings.LastIndex(on, ".")+1:])
}

// one is the judgement of one variable; the zero value if there is none.
func one(f Facts, name string, env map[string]string) Judgement {
	for _, j := range Judge(f, env) {
		if j.Name == name {
			return j
		}
	}
	return Judgement{}
}

func (r row) environment() map[string]string {
	env := maps.Clone(r.env)
	if env == nil {
		env = map[string]string{}
	}
	env[r.name] = r.value
	return env
}

func TestJudge(t *testing.T) {
	for _, r := range rows {
		t.Run(r.String(), func(t *testing.T) {
			j := one(r.on(), r.name, r.environment())
			if j.Result != r.want || j.Set != r.set {
				t.Errorf("%v, set %q: %s; want %v, %q", j.Result, j.Set, j.Says, r.want, r.set)
			}
			check(t, j)
		})
	}
}

// check holds a judgement to what each must have.
func check(t *testing.T, j Judgement) {
	t.Helper()
	if j.Says == "" || j.Source == "" || j.Library == "" {
		t.Errorf("says %q, source %q, library %q: want all", j.Says, j.Source, j.Library)
	}
	harms := j.Result == ResultWarn || j.Result == ResultFail
	if j.Set != "" && j.Change == "" || harms && j.Change == "" && !strings.Contains(j.Says, "no dma-buf route") {
		t.Errorf("%s: %s: change %q, set %q", j.Name, j.Says, j.Change, j.Set)
	}
	if j.Result == ResultPass && (j.Change != "" || j.Set != "") {
		t.Errorf("%s passes, and wants %q %q", j.Name, j.Change, j.Set)
	}
	if strings.Contains(j.Says, "%!") || strings.Contains(j.Change, "%!") {
		t.Errorf("%q %q", j.Says, j.Change)
	}
}

// TestEachVariable holds that each variable has a value that is wrong, or not known to be
// right, on one machine and right on another.
func TestEachVariable(t *testing.T) {
	type value struct{ name, value string }
	right, wrong := map[value]bool{}, map[value]bool{}
	for _, r := range rows {
		if r.want == ResultPass {
			right[value{r.name, r.value}] = true
		} else {
			wrong[value{r.name, r.value}] = true
		}
	}
	both := map[string]bool{}
	for v := range wrong {
		both[v.name] = both[v.name] || right[v]
	}
	for _, v := range Catalogue() {
		if !both[v.Name] {
			t.Errorf("%s: no value in the table that is right on one machine and wrong on another", v.Name)
		}
	}
	for v := range both {
		if !Known(v) {
			t.Errorf("%s is in the table, and not in the catalogue", v)
		}
	}
}

func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for i, v := range Catalogue() {
		if v.Library == "" || v.Default == "" || v.Effect == "" || v.Source == "" {
			t.Errorf("%+v: want all but Since", v)
		}
		if strings.Contains(v.Source, "http") || strings.Contains(v.Source, "docs.") {
			t.Errorf("%s: the source %q is an address", v.Name, v.Source)
		}
		if seen[v.Name] {
			t.Errorf("%s is there twice", v.Name)
		}
		seen[v.Name] = true
		if catalogue[i].set == nil {
			t.Errorf("%s has no rule", v.Name)
		}
		if !Known(v.Name) {
			t.Errorf("%s is not known", v.Name)
		}
	}
	for _, name := range []string{"", "PATH", "NCCL_HOSTID", "MC_REDIS_PASSWORD", "NCCL_", "nccl_ib_hca"} {
		if Known(name) {
			t.Errorf("%q is known", name)
		}
	}
}

// TestUnread holds that a value that does harm on a machine is not right on the same
// machine with all facts unread.
func TestUnread(t *testing.T) {
	for _, r := range rows {
		if r.want == ResultPass {
			continue
		}
		j := one(blank(r.on()), r.name, r.environment())
		switch {
		case len(r.on().NICs) == 0:
			continue // a list that is empty was read
		case j.Result == ResultPass:
			t.Errorf("%v: nothing was read, and it passes: %s", r, j.Says)
		case !r.fixed && j.Result != ResultUnknown:
			t.Errorf("%v: nothing was read, and it is %v: %s", r, j.Result, j.Says)
		case r.fixed && j.Result != r.want:
			t.Errorf("%v: %v without facts, want %v", r, j.Result, r.want)
		}
	}
}

// TestLibraries holds the variables that each library is known for.
func TestLibraries(t *testing.T) {
	for library, names := range map[string]string{
		"NCCL":         "NCCL_DMABUF_ENABLE NCCL_NET_GDR_LEVEL NCCL_NET_GDR_C2C NCCL_NET_GDR_READ NCCL_IB_DATA_DIRECT NCCL_IB_PCI_RELAXED_ORDERING NCCL_NET_GDR_MLOPART NCCL_CUMEM_ENABLE NCCL_IB_HCA NCCL_IB_GID_INDEX NCCL_IB_DISABLE NCCL_P2P_LEVEL NCCL_TOPO_FILE",
		"RCCL":         "RCCL_FORCE_ENABLE_DMABUF",
		"UCX":          "UCX_IB_GPU_DIRECT_RDMA UCX_CUDA_COPY_DMABUF UCX_ROCM_COPY_DMABUF UCX_CUDA_COPY_REG_WHOLE_ALLOC UCX_CUDA_COPY_MAX_REG_RATIO UCX_IB_DIRECT_NIC UCX_IB_GDA_DMABUF_ENABLE UCX_IB_PCI_RELAXED_ORDERING UCX_RNDV_SCHEME UCX_NET_DEVICES UCX_TLS",
		"libfabric":    "FI_HMEM_CUDA_USE_DMABUF FI_HMEM_ROCR_USE_DMABUF FI_HMEM_CUDA_USE_GDRCOPY FI_HMEM_DISABLE_P2P FI_VERBS_USE_DMABUF FI_CXI_ATS FI_CXI_DISABLE_HMEM_DEV_REGISTER FI_CXI_FORCE_ZE_HMEM_SUPPORT",
		"aws-ofi-nccl": "OFI_NCCL_DISABLE_DMABUF",
		"NIXL":         "NIXL_CONFIG_FILE",
		"Mooncake":     "WITH_NVIDIA_PEERMEM MC_IB_PCI_RELAXED_ORDERING MC_TE_FILTERS MC_TE_FILTERS_EXCLUDE MC_FORCE_HCA MC_FORCE_TCP MC_PATH_ROUNDROBIN MC_ENABLE_DEST_DEVICE_AFFINITY MC_GID_INDEX MC_EFA_NIC_SELECTION MC_MLX5_QP_LAG_PORT_BALANCE MC_USE_TENT",
		"PyTorch":      "PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF",
		"NVSHMEM":      "NVSHMEM_IB_DISABLE_DMABUF NVSHMEM_DISABLE_DATA_DIRECT NVSHMEM_IB_ENABLE_RELAXED_ORDERING NVSHMEM_HCA_PREFIX NVSHMEM_DISABLE_CUDA_VMM NVSHMEM_IB_ENABLE_IBGDA NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE",
		"MSCCL++":      "MSCCLPP_HCA_DEVICES",
	} {
		for _, name := range strings.Fields(names) {
			if !slices.ContainsFunc(Catalogue(), func(v Variable) bool { return v.Name == name && v.Library == library }) {
				t.Errorf("%s of %s is not in the catalogue", name, library)
			}
		}
	}
}

// erasures take one fact away.
var erasures = map[string]func(*Facts){
	"CPU":         func(f *Facts) { f.CPU = CPU{} },
	"Devices":     func(f *Facts) { f.Devices = nil },
	"NetDevices":  func(f *Facts) { f.NetDevices = nil },
	"DMABuf":      func(f *Facts) { f.DMABuf = placement.AnswerUnknown },
	"PeerMem":     func(f *Facts) { f.PeerMem = placement.AnswerUnknown },
	"PeerModule":  func(f *Facts) { f.PeerModule = placement.AnswerUnknown },
	"Virtual":     func(f *Facts) { f.Virtual = placement.AnswerUnknown },
	"Config":      func(f *Facts) { f.Config = ConfigUnread },
	"ConfigGzip":  func(f *Facts) { f.ConfigGzip = placement.AnswerUnknown },
	"Nearest":     func(f *Facts) { eachGPU(f, func(g *GPU) { g.Nearest, g.NearestNICs = DistanceUnknown, nil }) },
	"NearestNICs": func(f *Facts) { eachGPU(f, func(g *GPU) { g.NearestNICs = nil }) },
	"NearestAny":  func(f *Facts) { eachGPU(f, func(g *GPU) { g.NearestAny = DistanceUnknown }) },
	"Coherent":    func(f *Facts) { eachGPU(f, func(g *GPU) { g.Coherent = placement.AnswerUnknown }) },
	"SmallBAR":    func(f *Facts) { eachGPU(f, func(g *GPU) { g.SmallBAR = placement.AnswerUnknown }) },
	"MLOPart":     func(f *Facts) { eachGPU(f, func(g *GPU) { g.MLOPart = placement.AnswerUnknown }) },
	"Bond":        func(f *Facts) { eachNIC(f, func(n *NIC) { n.Bond = placement.AnswerUnknown }) },
	"DataDirect":  func(f *Facts) { eachNIC(f, func(n *NIC) { n.DataDirect = placement.AnswerUnknown }) },
	"OwnRoute":    func(f *Facts) { eachNIC(f, func(n *NIC) { n.OwnRoute = placement.AnswerUnknown }) },
	"GIDs":        func(f *Facts) { eachNIC(f, func(n *NIC) { n.Ports = []Port{{Num: 1, RoCE: n.Ports[0].RoCE}} }) },
	"RoCE":        func(f *Facts) { eachNIC(f, func(n *NIC) { n.Ports = []Port{{Num: 1}} }) },
}

func eachGPU(f *Facts, change func(*GPU)) {
	for i := range f.GPUs {
		change(&f.GPUs[i])
	}
}

func eachNIC(f *Facts, change func(*NIC)) {
	for i := range f.NICs {
		change(&f.NICs[i])
	}
}

// TestErased holds that a fact that is not read makes no wrong value right, and no right
// value wrong.
func TestErased(t *testing.T) {
	for _, r := range rows {
		for fact, erase := range erasures {
			if r.name == "MC_IB_PORT" && (fact == "GIDs" || fact == "RoCE") {
				continue // these erasures leave one port
			}
			j := one(with(r.on(), erase), r.name, r.environment())
			harms := j.Result == ResultWarn || j.Result == ResultFail
			if r.want == ResultPass && harms || r.want != ResultPass && j.Result == ResultPass {
				t.Errorf("%v: %v, and %v without %s: %s", r, r.want, j.Result, fact, j.Says)
			}
		}
	}
}

// TestNeeded holds the variables that are not set and are needed.
func TestNeeded(t *testing.T) {
	nccl := func(v string) func(*Facts) {
		return func(f *Facts) { f.Versions = map[string]string{"NCCL": v} }
	}
	ucx := func(v string) func(*Facts) {
		return func(f *Facts) { f.Versions = map[string]string{"UCX": v} }
	}
	for _, c := range []struct {
		what string
		on   Facts
		env  map[string]string
		want []string // Set of those that are not set
	}{
		{what: "NICs at the GPUs' switches", on: dgx()},
		{what: "case 08: Emerald Rapids between root ports", on: rooted(), want: []string{gdrLevel + "=PHB", "UCX_IB_PCI_RELAXED_ORDERING=y"}},
		{what: "the same with UCX 1.22", on: with(rooted(), ucx("1.22.0")), want: []string{gdrLevel + "=PHB"}},
		{what: "the same with UCX 1.20.1", on: with(rooted(), ucx("1.20.1")), want: []string{gdrLevel + "=PHB", "UCX_IB_PCI_RELAXED_ORDERING=y"}},
		{what: "case 09: NICs on Grace's ports", on: gh200(), want: []string{gdrC2C + "=1"}},
		{what: "the same with NCCL 2.27", on: with(gh200(), nccl("2.27.3"))},
		{what: "the same with NCCL 2.26", on: with(gh200(), nccl("2.26.2")), want: []string{gdrC2C + "=1"}},
		{what: "the same with NCCL 2.24", on: with(gh200(), nccl("2.24.3")), want: []string{gdrLevel + "=PHB"}},
		{what: "the same with a level", on: gh200(), env: beside(gdrLevel, "SYS")},
		{what: "Data Direct", on: gb300()},
		{what: "case 14: a LAG", on: bonded(), want: []string{"UCX_TLS=^gga_mlx5"}},
		{what: "the same with UCX 1.16", on: with(bonded(), ucx("1.16.0"))},
		{what: "the same with Mooncake", on: bonded(), env: beside("MC_GID_INDEX", "3"),
			want: []string{"UCX_TLS=^gga_mlx5", peermem + "=0", "MC_MLX5_QP_LAG_PORT_BALANCE=1"}},
		{what: "case 18: one NIC for two NUMA nodes", on: twoNodes(), want: []string{gdrLevel + "=SYS", rndvScheme + "=get_zcopy"}},
		{what: "ROCm without a peer-memory client", on: mi300x(), want: []string{"NCCL_DMABUF_ENABLE=1", rocmDMABuf + "=y"}},
		{what: "the same on a kernel without the option", on: newKernel(), want: []string{"NCCL_DMABUF_ENABLE=1", forceRCCL + "=1", rocmDMABuf + "=y"}},
		{what: "the same forced", on: newKernel(), env: beside(forceRCCL, "1"), want: []string{rocmDMABuf + "=y"}},
		{what: "the configuration elsewhere", on: with(mi300x(), func(f *Facts) { f.Config = ConfigOther }), env: beside("NCCL_DMABUF_ENABLE", "1"),
			want: []string{forceRCCL + "=1", rocmDMABuf + "=y"}},
		{what: "/proc/config.gz", on: with(mi300x(), func(f *Facts) { f.ConfigGzip = y }), env: beside("NCCL_DMABUF_ENABLE", "1"),
			want: []string{forceRCCL + "=1", rocmDMABuf + "=y"}},
		{what: "the same with RCCL 2.28", on: with(mi300x(), func(f *Facts) { f.ConfigGzip, f.Versions = y, map[string]string{"RCCL": "2.28.9"} }), env: beside("NCCL_DMABUF_ENABLE", "1"),
			want: []string{rocmDMABuf + "=y"}},
		{what: "ROCm with a peer-memory client", on: amdPeer()},
		{what: "Mooncake between root ports", on: rooted(), env: beside(teFilters, "mlx5_0,mlx5_1"),
			want: []string{gdrLevel + "=PHB", "UCX_IB_PCI_RELAXED_ORDERING=y", peermem + "=0", "MC_IB_PCI_RELAXED_ORDERING=1"}},
		{what: "an MLOPart partition", on: partitioned(), want: []string{"NCCL_NET_GDR_MLOPART=1"}},
		{what: "renamed NICs with NVSHMEM", on: renamed(), env: beside(ibgda, "1"), want: []string{hcaPrefix + "=ibp"}},
		{what: "renamed NICs without NVSHMEM", on: renamed()},
		{what: "MSCCL++ with a RoCE NIC", on: with(bonded(), ucx("1.16.0")), env: beside("MSCCLPP_HCA_DEVICES", "mlx5_bond_0"), want: []string{""}},
		{what: "aws-ofi-nccl 1.14.0", on: with(p5(), func(f *Facts) { f.Versions = map[string]string{"aws-ofi-nccl": "1.14.0"} }), want: []string{"OFI_NCCL_DISABLE_DMABUF=0"}},
		{what: "aws-ofi-nccl 1.15.0", on: with(p5(), func(f *Facts) { f.Versions = map[string]string{"aws-ofi-nccl": "1.15.0"} })},
		{what: "the same with Amazon's efa", on: with(amazon(), func(f *Facts) { f.Versions = map[string]string{"aws-ofi-nccl": "1.14.0"} })},
		{what: "EFA", on: p5()},
		{what: "no pair is direct", on: refused()},
		{what: "no GPU", on: headless()},
		{what: "no NIC", on: offline()},
		{what: "nothing was read", on: blank(rooted())},
		{what: "nothing at all", on: Facts{}},
	} {
		var got []string
		for _, j := range Judge(c.on, c.env) {
			check(t, j)
			if !j.Present {
				got = append(got, j.Set)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: wants %q, want %q", c.what, got, c.want)
		}
	}
}

// TestCase09 is the case of a remedy that made it worse: NVIDIA/nccl#1579.
func TestCase09(t *testing.T) {
	for _, j := range Judge(gh200(), map[string]string{gdrC2C: "0"}) {
		if j.Set == gdrC2C+"=0" || j.Name == gdrC2C && (j.Result != ResultWarn || j.Set != gdrC2C+"=1") {
			t.Errorf("%+v", j)
		}
	}
}

// TestCase18 holds what the reader is offered: openucx/ucx#11121.
func TestCase18(t *testing.T) {
	j := one(twoNodes(), rndvScheme, nil)
	for _, word := range []string{"UCX_IB_GPU_DIRECT_RDMA=y", "NPS1", "UCX_DISTANCE_BW"} {
		if !strings.Contains(j.Change, word) {
			t.Errorf("%q does not have %s", j.Change, word)
		}
	}
	if j.Result != ResultWarn || !strings.Contains(j.Says, "gpu0") || strings.Contains(j.Says, "gpu1") {
		t.Errorf("%v: %s", j.Result, j.Says)
	}
}

// TestCase14 holds that a LAG alone fails nothing: openucx/ucx#11709.
func TestCase14(t *testing.T) {
	for _, j := range Judge(bonded(), nil) {
		if j.Result == ResultFail {
			t.Errorf("%+v", j)
		}
	}
}

// TestLevelAgainstC2C holds which of the two counts: nccl v2.26.2, v2.27.3, v2.28.9 and
// v2.29.2, src/graph/paths.cc.
func TestLevelAgainstC2C(t *testing.T) {
	for version, want := range map[string]Result{"2.26.2": ResultPass, "2.28.9": ResultPass, "2.29.2": ResultWarn, "2.30.7": ResultWarn, "": ResultWarn} {
		f := gh200()
		f.Versions = map[string]string{"NCCL": version}
		if j := one(f, gdrLevel, map[string]string{gdrLevel: "PXB", gdrC2C: "1"}); j.Result != want {
			t.Errorf("NCCL %q: %v, want %v: %s", version, j.Result, want, j.Says)
		}
	}
}

// TestTexts holds the parts of messages that name devices and reasons.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		name, value string
		on          Facts
		has         []string
	}{
		{"NCCL_IB_DATA_DIRECT", "0", gb300(), []string{"mlx5_0", "mlx5_1"}},
		{ucxTLS, "all", bonded(), []string{"mlx5_bond_0", "lag_tx_port_affinity", "ENODEV"}},
		{gdrLevel, "LOC", refused(), []string{"no pair of this machine is direct"}},
		{gdrLevel, "PXB", twoNodes(), []string{"gpu0, gpu1", "SYS"}},
		{"NCCL_IB_PCI_RELAXED_ORDERING", "0", rooted(), []string{"Emerald Rapids", "16 GB/s"}},
		{"NCCL_IB_PCI_RELAXED_ORDERING", "0", with(rooted(), func(f *Facts) { f.CPU = sapphire }), []string{"Sapphire Rapids", "inferred"}},
		{peermem, "true", dgx(), []string{"EFAULT"}},
		{"NCCL_DMABUF_ENABLE", "off", dgx(), []string{`"off" as 0`}},
		{ncclHCA, "mlx5_9,mlx5_0,mlx5_1", dgx(), []string{"mlx5_9", "it has mlx5_0, mlx5_1"}},
	} {
		j := one(c.on, c.name, map[string]string{c.name: c.value})
		for _, word := range c.has {
			if !strings.Contains(j.Says, word) {
				t.Errorf("%s=%s: %q does not have %q", c.name, c.value, j.Says, word)
			}
		}
	}
}

func TestOrder(t *testing.T) {
	env := map[string]string{}
	for _, v := range Catalogue() {
		env[v.Name] = "1"
	}
	first := Judge(dgx(), env)
	if len(first) != len(catalogue) {
		t.Fatalf("%d judgements of %d variables", len(first), len(catalogue))
	}
	for range 3 {
		if again := Judge(dgx(), env); !reflect.DeepEqual(first, again) {
			t.Fatal("the judgements differ from call to call")
		}
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{ResultUnknown.String(), "unknown"}, {ResultFail.String(), "fail"}, {Result(9).String(), "invalid (9)"},
		{NVIDIA.String(), "NVIDIA"}, {PHB.String(), "PHB"}, {Distance(-1).String(), "invalid (-1)"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	for text, want := range map[string]Distance{"PIX": PIX, "SYS": SYS, "": DistanceUnknown, "none": DistanceUnknown, "NODE": DistanceUnknown} {
		if got := ParseDistance(text); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

func TestAtLeast(t *testing.T) {
	f := Facts{Versions: map[string]string{"a": "2.27.3", "b": "v1.22.0-rc1", "c": "main", "d": "2"}}
	for _, c := range []struct {
		library string
		want    []int
		is      placement.Answer
	}{
		{"a", []int{2, 27}, y}, {"a", []int{2, 27, 3}, y}, {"a", []int{2, 27, 4}, n}, {"a", []int{2, 28}, n}, {"a", []int{3}, n}, {"a", []int{1, 99}, y},
		{"b", []int{1, 22}, y}, {"c", []int{1}, placement.AnswerUnknown}, {"d", []int{2, 1}, n}, {"none", []int{1}, placement.AnswerUnknown},
	} {
		if got := f.atLeast(c.library, c.want...); got != c.is {
			t.Errorf("%s at least %v: %v, want %v", f.Versions[c.library], c.want, got, c.is)
		}
	}
}
