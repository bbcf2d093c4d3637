// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Machine writes a machine of the corpus, with the files by which NVIDIA's driver names its device files: the GPUs
// of minors[i] has /dev/nvidia<minors[i]>, by PCI address. Without minors they are counted from 0. It returns the folder.
func Machine(t *testing.T, name string, minors ...int) string {
	t.Helper()
	m := testenv.CorpusNamed(t, name)
	root := m.Tree.Write(t)
	var gpus []string
	for _, p := range m.Pairs {
		if !slices.Contains(gpus, p.GPU) {
			gpus = append(gpus, p.GPU)
		}
	}
	slices.Sort(gpus)
	for at, gpu := range gpus {
		minor := at
		if at < len(minors) {
			minor = minors[at]
		}
		file := filepath.Join(root, "proc/driver/nvidia/gpus", gpu, "information")
		text, _ := os.ReadFile(file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool { return strings.HasPrefix(line, "Device Minor") })
		write(t, file, strings.Join(lines, "\n")+fmt.Sprintf("\nDevice Minor: \t %d\n", minor))
	}
	boot := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(boot), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, boot, "5f1c3d5a-0000-4000-8000-000000000001\n")
	// The folder is of a test that runs as root, and a TaskProlog reads it as the job's user.
	for dir := root; len(dir) > len("/tmp"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Becomes makes a node have a machine from now on: /srv/NODE is it, as P2PCHECK_ARGS has it.
func Becomes(t *testing.T, node, root string) {
	t.Helper()
	tmp := "/srv/." + node
	if err := os.Symlink(root, tmp); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, "/srv/"+node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove("/srv/" + node) })
}
