// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// linux-rdma/perftest#280, openucx/ucx#9908, perplexityai/pplx-garden#3: one errno,
// a kernel that is too old, or an ib_uverbs from elsewhere.
func TestNoMethod(t *testing.T) {
	const taint, release = "sys/module/ib_uverbs/taint", "proc/sys/kernel/osrelease"
	const own = "go back to the kernel's own"
	for _, row := range []struct {
		name    string
		files   tree
		detail  []string
		remedy  []string
		mustNot []string
	}{
		{
			"an old kernel", tree{release: "5.10.0-28-amd64", taint: ""},
			[]string{"Linux 5.10.0-28-amd64 has no REG_DMABUF_MR"}, []string{"use Linux 5.12 or newer"}, []string{"DOCA", "taint"},
		},
		{
			"an old kernel, taint not there to read", tree{release: "4.18.0-553.el8_10.x86_64"},
			[]string{"Linux 4.18.0-553.el8_10.x86_64 has no"}, []string{"use Linux 5.12 or newer"}, []string{"DOCA"},
		},
		{
			"an old kernel with another's modules", tree{release: "5.4.0-200-generic", taint: "OE"},
			[]string{"Linux 5.4.0-200-generic has no REG_DMABUF_MR", "not the kernel's own (taint OE"}, []string{"use Linux 5.12 or newer", "DOCA"}, nil,
		},
		{
			"a new kernel with MLNX_OFED's modules", tree{release: "5.15.0-122-generic", taint: "OE", "sys/module/mlx_compat/taint": "OE"},
			[]string{"Linux 5.15.0-122-generic has REG_DMABUF_MR", "not the kernel's own (taint OE in ", "module/ib_uverbs/taint", "MLNX_OFED or DOCA"},
			[]string{"newer RDMA modules", own}, []string{"use Linux 5.12"},
		},
		{
			"a new kernel with modules from somewhere", tree{release: "6.8.0-60-generic", taint: "O"},
			[]string{"not the kernel's own (taint O in "}, []string{own}, []string{"use Linux 5.12", "MLNX_OFED or DOCA"},
		},
		{
			"5.12 itself", tree{release: "5.12.0", taint: "O"}, []string{"Linux 5.12.0 has REG_DMABUF_MR"}, []string{own}, []string{"use Linux 5.12"},
		},
		{
			"5.11", tree{release: "5.11.22", taint: ""}, []string{"Linux 5.11.22 has no REG_DMABUF_MR"}, []string{"use Linux 5.12 or newer"}, nil,
		},
		{
			"a new kernel with its own module", tree{release: "6.12.43+deb13-amd64", taint: ""},
			[]string{"ib_uverbs is the kernel's own (its taint has no O): neither explains"}, []string{"seccomp", "modinfo ib_uverbs"}, []string{"use Linux 5.12", own},
		},
		{
			"a new kernel with its own module, unsigned", tree{release: "6.12.43+deb13-amd64", taint: "E"},
			[]string{"ib_uverbs is the kernel's own"}, nil, []string{own},
		},
		{
			"built in", tree{release: "6.12.1", "sys/module/kernel/parameters/panic": "0"},
			[]string{"built in", "neither explains"}, []string{"seccomp"}, []string{own, "use Linux 5.12"},
		},
		{
			"no module can be seen", tree{release: "5.15.0", "sys/class/net/lo/type": "772"},
			[]string{"Linux 5.15.0 has REG_DMABUF_MR", "could not be checked", "module/ib_uverbs/taint cannot be read"}, []string{own}, []string{"use Linux 5.12"},
		},
		{
			"only the taint is read", tree{taint: "OE"}, []string{"not the kernel's own (taint OE", "release could not be read"}, []string{own, "Linux 5.12 or newer"}, nil,
		},
		{
			"only a clean taint is read", tree{taint: ""}, []string{"the kernel's own", "older than 5.12"}, []string{"use Linux 5.12 or newer"}, []string{"DOCA"},
		},
		{
			"nothing is read", nil, []string{"either the kernel is older than Linux 5.12", "MLNX_OFED or DOCA", "neither could be read"},
			[]string{"uname -r", "/sys/module/ib_uverbs/taint"}, nil,
		},
		{
			"a release without numbers", tree{release: "next", taint: "O"}, []string{"release could not be read"}, []string{own}, nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			detail, remedy := row.files.machine(t).NoMethod()
			for _, want := range row.detail {
				if !strings.Contains(detail, want) {
					t.Errorf("detail %q, want %q in it", detail, want)
				}
			}
			for _, want := range row.remedy {
				if !strings.Contains(remedy, want) {
					t.Errorf("remedy %q, want %q in it", remedy, want)
				}
			}
			for _, not := range row.mustNot {
				if strings.Contains(detail+"; "+remedy, not) {
					t.Errorf("%q is in it: %s; %s", not, detail, remedy)
				}
			}
		})
	}
}

// A taint that is there and cannot be read is neither the kernel's own nor another's.
func TestUnreadableTaint(t *testing.T) {
	m := tree{"proc/sys/kernel/osrelease": "5.15.0", "sys/module/ib_uverbs/taint": "OE"}.machine(t)
	testenv.WatchFiles(t, m.Sys.Root(), func(name string) error {
		if filepath.Base(name) == "taint" {
			return unix.EACCES
		}
		return nil
	})
	detail, _ := m.NoMethod()
	if !strings.Contains(detail, "cannot be read") || strings.Contains(detail, "taint OE") {
		t.Error(detail)
	}
}

// The running kernel tells its release by a system call where procfs does not.
func TestRelease(t *testing.T) {
	want, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Skip(err)
	}
	testenv.WatchFiles(t, "/proc", func(string) error { return unix.EACCES })
	if got, err := (Machine{}).release(); err != nil || got != strings.TrimSpace(string(want)) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, err := (Machine{Sys: sysfs.New(t.TempDir()), Proc: procfs.New(t.TempDir())}).release(); err == nil {
		t.Errorf("%q from a tree that has none", got)
	}
}
