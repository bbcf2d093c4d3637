// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/gpurdma/gpurdma/placement"
)

// TestNumber holds what strtoll(text, NULL, 0) makes of a value: nccl src/misc/param.cc,
// ncclLoadParam().
func TestNumber(t *testing.T) {
	for text, want := range map[string]int64{
		"": 7, "0": 0, "1": 1, "-2": -2, "+3": 3, " 4": 4, "0x10": 16, "010": 8, "08": 0, "12abc": 12,
		"true": 0, "yes": 0, "-": 0, "0x": 0, "99999999999999999999": 7, "\t5": 5,
	} {
		if got := number(text, 7); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}

func TestParseLevel(t *testing.T) {
	for text, want := range map[string]string{"LOC": "LOC", "SYS": "SYS", "P2C": "P2C", "0": "LOC", "1": "PIX", "2": "PXB", "3": "PHB", "4": "SYS", "5": "SYS", "77": "SYS"} {
		if rank, ok := parseLevel(text); !ok || levels[rank] != want {
			t.Errorf("%q is level %d, %v, want %s", text, rank, ok, want)
		}
	}
	for _, text := range []string{"", "sys", "-1", " PIX", "DIS"} {
		if rank, ok := parseLevel(text); ok {
			t.Errorf("%q is level %s, want none", text, levels[rank])
		}
	}
}

func TestBooleans(t *testing.T) {
	const u = placement.AnswerUnknown
	for _, c := range []struct {
		what string
		read func(string) placement.Answer
		want map[string]placement.Answer
	}{
		{"UCX: src/ucs/config/parser.c, ucs_config_sscanf_bool()", ofUCX, map[string]placement.Answer{"y": y, "Yes": y, "1": y, "on": y, "n": n, "NO": n, "0": n, "try": u, "true": u, "": u}},
		{"libfabric: src/var.c, fi_parse_bool()", ofLibfabric, map[string]placement.Answer{"1": y, "TRUE": y, "on": y, "0": n, "off": n, "y": u, "": u}},
		{"aws-ofi-nccl: include/nccl_ofi_param_impl.h", ofOFI, map[string]placement.Answer{"1": y, "2": y, "True": y, "0": n, "false": n, "yes": u, "": u}},
		{"Mooncake: mooncake-common/include/bool_parser.h", ofMooncake, map[string]placement.Answer{"1": y, " ON ": y, "enable": y, "0": n, "disable": n, "2": u, "": u}},
	} {
		for text, want := range c.want {
			if got := c.read(text); got != want {
				t.Errorf("%s: %q is %v, want %v", c.what, text, got, want)
			}
		}
	}
	// nvshmem src/include/bootstrap_host_transport/env_defs_internal.h, nvshmemi_getenv_bool()
	for text, want := range map[string]bool{"1": true, "": true, "yes": true, "2": true, "0": false, "no": false, "False": false, "off": true} {
		if got := ofNVSHMEM(text); got != want {
			t.Errorf("NVSHMEM: %q is %v, want %v", text, got, want)
		}
	}
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		s      selection
		device string
		port   int
		want   bool
	}{
		// nccl src/misc/utils.cc, parseStringList() and matchIfList()
		{parseNCCL(""), "mlx5_0", 0, true},
		{parseNCCL("mlx5"), "mlx5_0", 0, true},
		{parseNCCL("mlx5_1"), "mlx5_10", 0, true},
		{parseNCCL("=mlx5_1"), "mlx5_10", 0, false},
		{parseNCCL("=mlx5_1"), "mlx5_1", 0, true},
		{parseNCCL("^mlx5_0"), "mlx5_0", 0, false},
		{parseNCCL("^mlx5_0"), "mlx5_1", 0, true},
		{parseNCCL("^=mlx5_1"), "mlx5_10", 0, true},
		{parseNCCL("mlx5_0:1"), "mlx5_0", 2, false},
		{parseNCCL("mlx5_0:1"), "mlx5_0", 0, true},
		{parseNCCL("^mlx5_0:1"), "mlx5_0", 2, true},
		{parseNCCL("^mlx5_0:1"), "mlx5_0", 1, false},
		{parseNCCL("mlx5_0::3"), "mlx5_0", 2, true}, // with a rail, without a port
		{parseNCCL(",,mlx5_0,"), "mlx5_0", 0, true},
		// ucx src/ucp/core/ucp_context.c, ucp_is_resource_in_device_list()
		{parseUCX("all"), "mlx5_0", 0, true},
		{parseUCX("mlx5_0"), "mlx5_0", 1, true},
		{parseUCX("mlx5_1"), "mlx5_10", 0, false},
		{parseUCX("mlx5_0:1"), "mlx5_0", 2, false},
		{parseUCX("mlx5_[2-4]:1"), "mlx5_3", 1, true},
		{parseUCX("mlx5_[2-4]:1"), "mlx5_5", 1, false},
		{parseUCX("^mlx5_[2-4]"), "mlx5_3", 1, false},
		// libfabric prov/verbs/src/verbs_info.c
		{parseVerbs("MLX5"), "mlx5_0", 0, true},
		{parseVerbs("mlx5_00"), "mlx5_0", 0, false},
		{parseList("mlx5_0 , mlx5_1"), "mlx5_1", 0, true},
	} {
		if got := c.s.port(c.device, c.port); got != c.want {
			t.Errorf("%+v takes %s:%d: %v, want %v", c.s.list, c.device, c.port, got, c.want)
		}
	}
	if s := parseUCX(strings.Repeat("a[0-999999],", 100)); len(s.list) > maxNames+100 {
		t.Errorf("a range makes %d names", len(s.list))
	}
}

// TestDevicesUnlisted holds that a device of which only the name was read counts.
func TestDevicesUnlisted(t *testing.T) {
	f := with(dgx(), func(f *Facts) { f.Devices = append(f.Devices, "mlx5_7") })
	if j := one(f, ncclHCA, map[string]string{ncclHCA: "mlx5_7"}); j.Result != ResultWarn || !strings.Contains(j.Says, "nearest direct NIC") {
		t.Errorf("%v: %s", j.Result, j.Says)
	}
	f.GPUs = f.GPUs[:1]
	f.GPUs[0].Nearest, f.GPUs[0].NearestNICs = NoNIC, nil
	if j := one(f, ncclHCA, map[string]string{ncclHCA: "mlx5_7"}); j.Result != ResultPass {
		t.Errorf("%v: %s", j.Result, j.Says)
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]bool{"^tcp,gga_mlx5": true, "mlx5_[0-1]:1": true, "a b": false, "$(x)": false, "a\x1bb": false, "a'b": false, "é": false, strings.Repeat("x", 161): false} {
		if got := plain(text); got != want {
			t.Errorf("%q is plain: %v", text, got)
		}
	}
}

func TestShown(t *testing.T) {
	evil := "\x1b[31m" + strings.Repeat("x", 1000) + "\n"
	for _, v := range Catalogue() {
		for _, f := range []Facts{dgx(), bonded(), mi300x(), p5(), frontier(), Facts{}} {
			for _, value := range []string{evil, evil + "," + evil, "^" + evil, "rc," + evil, evil + "=" + evil, "1" + evil} {
				for _, j := range Judge(f, map[string]string{v.Name: value, peMapping: "1", hcaAffinity: "1", tent: "1"}) {
					text := j.Says + j.Change + j.Set
					if j.Name == v.Name && (len(text) > 1200 || strings.ContainsFunc(text, unicode.IsControl)) {
						t.Errorf("%s: %q", v.Name, text)
					}
				}
			}
		}
	}
}

func TestRelaxedOrdering(t *testing.T) {
	for _, c := range []struct {
		vendor        string
		family, model int
		want          placement.Answer
		processor     string
		inferred      bool
	}{
		{"AuthenticAMD", 0x17, 0x31, y, "AMD Rome", false},
		{"AuthenticAMD", 0x17, 0x71, placement.AnswerUnknown, "", false}, // Matisse
		{"AuthenticAMD", 0x19, 0x01, y, "AMD Milan", false},
		{"AuthenticAMD", 0x19, 0x11, y, "AMD Genoa", false},
		{"AuthenticAMD", 0x19, 0x21, placement.AnswerUnknown, "", false}, // Vermeer
		{"AuthenticAMD", 0x1a, 0x02, y, "AMD Turin", false},
		{"AuthenticAMD", 0x1a, 0x44, y, "AMD Turin", false},
		{"AuthenticAMD", 0x1a, 0x30, placement.AnswerUnknown, "", false},
		{"AuthenticAMD", 0x1a, -1, placement.AnswerUnknown, "", false},
		{"GenuineIntel", 6, 207, y, "Intel Emerald Rapids", false},
		{"GenuineIntel", 6, 143, y, "Intel Sapphire Rapids", true},
		{"GenuineIntel", 6, 173, y, "Intel Granite Rapids", true},
		{"GenuineIntel", 6, 63, n, "Intel Haswell", false},
		{"GenuineIntel", 6, 106, placement.AnswerUnknown, "", false}, // Ice Lake
		{"GenuineIntel", 15, 207, placement.AnswerUnknown, "", false},
		{"HygonGenuine", 24, 0, placement.AnswerUnknown, "", false},
		{"0x41", 0, 0xd4f, placement.AnswerUnknown, "", false}, // Grace
		{"0x4e", 0, 0x010, y, "NVIDIA Vera", false},
		{"", 0, 0, placement.AnswerUnknown, "", false},
	} {
		o := NeedsRelaxedOrdering(c.vendor, c.family, c.model)
		if o.Needed != c.want || o.Processor != c.processor || o.Inferred != c.inferred {
			t.Errorf("%s %d %d: %+v", c.vendor, c.family, c.model, o)
		}
	}
	for _, p := range processors {
		if p.Needed == placement.AnswerUnknown || p.Why == "" || p.Source == "" || p.Processor == "" {
			t.Errorf("%+v: want all", p.Ordering)
		}
		if p.UCX != "" && slices.Contains(version(p.UCX), 0) {
			t.Errorf("%s: UCX %q", p.Processor, p.UCX)
		}
	}
}

func FuzzJudge(f *testing.F) {
	for _, r := range rows {
		f.Add(r.name, r.value)
	}
	f.Add("UCX_NET_DEVICES", "a[0-999999]b,c[5-1]")
	f.Add(ncclHCA, "^=:,::,")
	f.Add("PYTORCH_CUDA_ALLOC_CONF", ":,expandable_segments")
	machines := []Facts{dgx(), gb300(), bonded(), mi300x(), p5(), frontier(), twoNodes(), blank(dgx()), {}}
	f.Fuzz(func(t *testing.T, name, value string) {
		for _, m := range machines {
			for _, j := range Judge(m, map[string]string{name: value}) {
				if j.Present != (j.Name == name) || j.Present && j.Value != value {
					t.Fatalf("%+v", j)
				}
				if text := j.Says + j.Change + j.Set; len(text) > 2000 || strings.ContainsFunc(text, unicode.IsControl) {
					t.Fatalf("%q", text)
				}
				check(t, j)
			}
		}
	})
}
