// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// With --pid the checks read the limits and variables of that process only. A finding says if the
// process has other namespaces than this program.
func TestOfAnotherProcess(t *testing.T) {
	const little, noCaps = "Max locked memory         8388608              8388608              bytes", "CapEff:\t0\nCapBnd:\t000001ffffffffff"
	of := func(name, text string) edit { return put("proc/4711/"+name, text) }
	ns := func(process string, number string) []edit {
		var out []edit
		for _, kind := range []string{"mnt", "net", "user", "cgroup"} {
			out = append(out, text("proc/"+process+"/ns/"+kind, kind+":["+number+"]"))
		}
		return out
	}
	first, other := text("proc/4711/ns/user", machine.FirstUser), text("proc/4711/ns/user", "user:[4026532000]")
	zombie := of("status", "State:\tZ (zombie)\nCapEff:\t0000000000004000")
	for _, c := range []struct {
		id    string
		want  p2p.Result
		words string
		edits []edit
	}{
		{"LIM-MEMLOCK", unknown, "not there", nil},
		{"LIM-MEMLOCK", fail, "process 4711: 8 MiB, without", []edit{of("limits", little), of("status", noCaps)}},
		{"LIM-MEMLOCK", fail, "ambient", []edit{of("limits", little), of("status", "CapEff:\t0\nCapBnd:\t0000000000004000")}},
		{"LIM-MEMLOCK", pass, "CAP_IPC_LOCK", []edit{of("limits", little), of("status", "CapEff:\t0000000000004000"), first}},
		{"LIM-MEMLOCK", fail, "another user namespace", []edit{of("limits", little), of("status", "CapEff:\t0000000000004000"), other}},
		{"LIM-MEMLOCK", unknown, "first user namespace only", []edit{of("limits", little), of("status", "CapEff:\t0000000000004000")}},
		{"LIM-MEMLOCK", unknown, "process 4711 has ended", []edit{of("limits", strings.ReplaceAll(little, "8388608", "unlimited")), zombie}},
		{"LIM-RDMA-CG", unknown, "process 4711 has ended", []edit{of("cgroup", "0::/job"), zombie}},
		{"CTR-SHM", unknown, "process 4711 has ended", []edit{of("mountinfo", "24 1 0:22 / /dev/shm rw - tmpfs tmpfs rw"), zombie}},
		{"LIB-NCCL-ENV", unknown, "process 4711 has ended", []edit{of("environ", "NCCL_DEBUG=WARN"), zombie}},
		{"ENV-CONTAINER", unknown, "process 4711 has ended", []edit{zombie}},
		{"LIB-NCCL-ENV", unknown, "written over", []edit{exactly("proc/4711/environ", "")}},
		{"LIB-NCCL-ENV", unknown, "written over", []edit{exactly("proc/4711/environ", strings.Repeat("\x00", 200))}},
		{"LIB-NCCL-ENV", unknown, "written over", []edit{exactly("proc/4711/environ", "title a=b"+strings.Repeat("\x00", 200))}},
		{"LIB-NCCL-ENV", unknown, "written over", []edit{exactly("proc/4711/environ", "title\x00\x00\x00A=b\x00")}},
		{"LIB-FABRIC-ENV", pass, "process 4711: none is set", []edit{exactly("proc/4711/environ", "A=b\x00C=\x00")}},
		{"LIB-NCCL-LEVEL", unknown, "written over", []edit{exactly("proc/4711/environ", "")}},
		{"LIM-RDMA-CG", pass, "process 4711: less in use", []edit{of("cgroup", "0::/job")}},
		{"LIM-MEMLOCK", unknown, "CapEff", []edit{of("limits", little), of("status", "Name:\tx")}},
		{"LIM-MEMLOCK", pass, "process 4711: unlimited", []edit{of("limits", strings.ReplaceAll(little, "8388608", "unlimited")), of("status", noCaps), put("proc/self/limits", little)}},
		{"LIM-RDMA-CG", fail, "process 4711: mlx5_0 hca_handle", []edit{of("cgroup", "0::/job"), put("sys/fs/cgroup/job/rdma.max", "mlx5_0 hca_handle=2"), put("sys/fs/cgroup/job/rdma.current", "mlx5_0 hca_handle=2")}},
		{"LIM-RDMA-CG", unknown, "outside", []edit{of("cgroup", "0::/../job")}},
		{"LIM-RDMA-CG", unknown, "not there", nil},
		{"LIB-NCCL-ENV", warn, "NCCL_DMABUF_ENABLE=0", []edit{of("environ", "NCCL_DMABUF_ENABLE=0")}},
		{"LIB-NCCL-ENV", pass, "NCCL_DMABUF_ENABLE=1", []edit{of("environ", "NCCL_DMABUF_ENABLE=1"), put("proc/self/environ", "NCCL_DMABUF_ENABLE=0")}},
		{"LIB-NCCL-ENV", unknown, "", []edit{unreadable("proc/4711/environ")}},
		{"CTR-SHM", warn, "process 4711: 64 MiB", []edit{of("mountinfo", "24 1 0:22 / /dev/shm rw - tmpfs tmpfs rw,size=65536k")}},
		{"CTR-SHM", unknown, "", []edit{unreadable("proc/4711/mountinfo")}},
		{"ENV-CONTAINER", warn, "other namespaces (mnt, net, user, cgroup)", append(ns("self", "1"), ns("4711", "2")...)},
		{"ENV-CONTAINER", unknown, "is not known (mnt, net, user, cgroup)", nil},
		{"ENV-CONTAINER", warn, "another user namespace", append(ns("self", "1"), ns("4711", "1")...)}, // p2pcheck itself
	} {
		tree := testenv.Machines["small-mi300"]()
		var after []func(*testing.T, string)
		for _, e := range c.edits {
			if f := e(&tree); f != nil {
				after = append(after, f)
			}
		}
		root := tree.Write(t)
		for _, f := range after {
			f(t, root)
		}
		m := machine.Source{Root: root, Process: 4711}.Open()
		s := subject(m)
		for _, check := range All() {
			if check.ID != c.id {
				s.Skip = append(s.Skip, check.ID)
			}
		}
		found := Run(m, s)
		if said := strings.Join(said(found), "\n"); worst(found) != c.want || !strings.Contains(said, c.words) || strings.Contains(said, "/proc/self/limits") {
			t.Errorf("%s: %s; want %v, %q", c.id, said, c.want, c.words)
		}
	}
}
