// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pagetest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The steps of docs/tutorials/check-a-cluster.md: install, start the timer's service on each node, report over the nodes'
// files, mend the fault in the report, and look again. Both reports are those that the page has. The nodes are copies
// of machines: the setting of the service names the copy that it reads in place of this machine.
func TestFirstTenMinutes(t *testing.T) {
	packages := debs(t, built(t, "GPURDMA_PACKAGES"))
	rooted(t)
	root := copyOf(t, suites(t)[0])
	install, enable, reports := clusterPage(t)
	must(t, inRoot(t, root, append(append(install, "--no-install-recommends"), carry(t, root, packages)...)...))
	good, bad := testenv.Machines["small-hgx"](), testenv.Machines["small-hgx"]()
	bad.Functions = strings.ReplaceAll(bad.Functions, "acs=0x00", "acs=0x1d")
	broken := testenv.Machines["small-mi300"]()
	broken.Config = strings.ReplaceAll(broken.Config, "CONFIG_PCI_P2PDMA=y", "# CONFIG_PCI_P2PDMA is not set")
	for node, tree := range map[string]testenv.Tree{"node1": good, "node2": good, "node3": bad, "mended": good, "broken": broken} {
		must(t, exec.CommandContext(t.Context(), "cp", "-a", tree.Write(t), filepath.Join(root, "srv", node)))
	}
	if err := os.Mkdir(filepath.Join(root, "root/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := boot(t, root)
	// look starts the service on a node, and fetches its run.
	look := func(node, files string, fails bool) {
		t.Helper()
		conf := `P2PCHECK_ARGS="--root /srv/` + files + ` --skip LIM,LIB,ENV-CAPS"` + "\n"
		if err := os.WriteFile(filepath.Join(root, "etc/p2pcheck.conf"), []byte(conf), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := try(t, b.command(t, "systemctl", "start", "p2pcheck.service")); (r.status != 0) != fails {
			t.Errorf("%s: systemctl start ends with %d: %s", node, r.status, r.out)
		}
		must(t, b.command(t, "cp", "/var/lib/p2pcheck/last.json", "/root/run/"+node+".json"))
	}
	for _, node := range []string{"node1", "node2", "node3"} {
		look(node, node, false)
	}
	r := try(t, b.command(t, "p2pcheck", "report", "/root/run"))
	t.Logf("p2pcheck report:\n%s", r.out)
	if r.status != 1 || !strings.Contains(r.out, "on 1 node: node3") || strings.Contains(r.out, "on 1 node: node1") || strings.Contains(r.out, "on 1 node: node2") {
		t.Errorf("the report does not name node3 alone: status %d: %s", r.status, r.out)
	}
	if err := reports[0].Check(r.out); err != nil {
		t.Error(err)
	}
	look("node3", "mended", false)
	b.journal(t, "better   check P2P-ACS-LIST 0000:13:00.0 -> mlx5_0: pass, was warn")
	r = try(t, b.command(t, "p2pcheck", "report", "/root/run"))
	t.Logf("p2pcheck report:\n%s", r.out)
	if r.status != 0 {
		t.Errorf("after the fault was mended: status %d: %s", r.status, r.out)
	}
	if err := reports[1].Check(r.out); err != nil {
		t.Error(err)
	}
	// A fault is a failure of the unit, which systemctl --failed shows.
	look("broken", "broken", true)
	if out := must(t, b.command(t, "systemctl", "--failed", "--no-legend", "--plain")); !strings.Contains(out, "p2pcheck.service") {
		t.Errorf("systemctl --failed: %s", out)
	}
	must(t, b.command(t, enable...)) // at the end: the runs of the timer would come between
}

// clusterPage returns the commands of the page that take root, without the packages' names, and the two reports.
func clusterPage(t *testing.T) (install, enable []string, reports []pagetest.Step) {
	t.Helper()
	for _, s := range pagetest.Read(t, "../../docs/tutorials/check-a-cluster.md").Steps() {
		words := strings.Fields(s.Command)
		switch {
		case s.Prompt == "#" && words[0] == "apt-get":
			install = words[:len(words)-1]
		case s.Prompt == "#" && words[0] == "systemctl":
			enable = words
		case s.Prompt == "#":
			t.Errorf("this test does not run %s", s.Command)
		case s.Command == "p2pcheck report run" && len(s.Want) > 0:
			reports = append(reports, s)
		}
	}
	if len(install) == 0 || len(enable) == 0 || len(reports) != 2 {
		t.Fatalf("the page has not what is tested: %q, %q, %d reports", install, enable, len(reports))
	}
	return install, enable, reports
}
