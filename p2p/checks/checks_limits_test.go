// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/check/hostcheck"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// The limit that is lifted is that of the device and of the group that has it: it may
// be one further up.
func TestRaisedLimit(t *testing.T) {
	limits := func(group, most, now string) edit {
		return func(f *testenv.Tree) func(*testing.T, string) {
			put("sys/fs/cgroup/"+group+"/rdma.max", most)(f)
			return put("sys/fs/cgroup/"+group+"/rdma.current", now)(f)
		}
	}
	in := func(group string) edit { return put("proc/self/cgroup", "0::/"+group) }
	const file = " hca_handle=max hca_object=max' > /sys/fs/cgroup/"
	for name, c := range map[string]struct {
		edits []edit
		want  []string
	}{
		"own":         {[]edit{limits("user.slice", "mlx5_0 hca_handle=2", "mlx5_0 hca_handle=2")}, []string{"echo 'mlx5_0" + file + "user.slice/rdma.max"}},
		"above":       {[]edit{in("jobs/1"), limits("jobs", "mlx5_1 hca_object=2", "mlx5_1 hca_object=2"), limits("jobs/1", "mlx5_1 hca_object=max", "mlx5_1 hca_object=2")}, []string{"echo 'mlx5_1" + file + "jobs/rdma.max"}},
		"two devices": {[]edit{limits("user.slice", "a hca_handle=1\nb hca_handle=1", "a hca_handle=1\nb hca_handle=1")}, []string{"echo 'a" + file + "user.slice/rdma.max", "echo 'b" + file + "user.slice/rdma.max"}},
		"odd names":   {[]edit{in(`a\x2db 'c`), limits(`a\x2db 'c`, "x'y hca_handle=1", "x'y hca_handle=1")}, []string{`echo 'x'\''y hca_handle=max hca_object=max' > '/sys/fs/cgroup/a\x2db '\''c/rdma.max'`}},
		"snapshot":    {[]edit{in("snapshot/docker"), limits("snapshot/docker", "mlx5_0 hca_handle=2", "mlx5_0 hca_handle=2")}, []string{"echo 'mlx5_0" + file + "GROUP/rdma.max"}},
	} {
		var got []string
		for _, f := range checked(t, testenv.Machines["small-mi300"](), check.Live{}, "LIM-RDMA-CG", c.edits...) {
			if f.Result == fail {
				got = append(got, f.Remedy.Command)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := hostcheck.Raised((&machine.Machine{Root: "/"}), "mlx5_0", "/sys/fs/cgroup/snapshot/rdma.max"); got != "echo 'mlx5_0"+file+"snapshot/rdma.max" {
		t.Error(got)
	}
}
