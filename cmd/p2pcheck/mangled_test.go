// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// directPairs are those that the command calls direct, and its status.
func directPairs(t *testing.T, root string) (map[string]bool, int) {
	t.Helper()
	var out, stderr bytes.Buffer
	a := &app{stdout: &out, stderr: &stderr}
	status := a.run([]string{"--root", root, "--json", "--skip", "all"})
	var d struct{ Result *result.Run }
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || status < cli.ExitOK || status > cli.ExitUnavailable {
		t.Fatalf("status %d, %v: %s%s", status, err, &out, &stderr)
	}
	pairs := map[string]bool{}
	if d.Result == nil {
		return pairs, status
	}
	for _, p := range d.Result.Pairs {
		if p.Outcome == "direct" {
			pairs[p.GPU+" "+p.NIC] = true
		}
	}
	return pairs, status
}

// A file that cannot be read never makes a pair direct, nor a machine a good one. The test takes away,
// empties and garbles one file at a time.
func TestMangledTree(t *testing.T) {
	testenv.Exhaustive(t)
	few, _, _ := strings.Cut(server, "pci0000:00/0000:00:02.0")
	good := machineTree(few, "0x00")
	delete(good.Links, "sys/class/infiniband/rxe0")
	for _, c := range []struct {
		tree   testenv.Tree
		direct int
		status int
	}{
		{machineTree(server, "0x1d"), 1, cli.ExitFailed},
		{good, 2, cli.ExitOK},
	} {
		root := c.tree.Write(t)
		whole, status := directPairs(t, root)
		if len(whole) != c.direct || status != c.status {
			t.Fatal(whole, status)
		}
		err := eachMangled(root, func(what string) {
			pairs, status := directPairs(t, root)
			for pair := range pairs {
				if !whole[pair] {
					t.Errorf("with %s, %s is direct", what, pair)
				}
			}
			if status == cli.ExitOK && len(pairs) != len(whole) {
				t.Errorf("with %s, %v is all there is", what, pairs)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// eachMangled calls f for each way in which a file is not as it should be.
func eachMangled(root string, f func(what string)) error {
	return filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.Remove(name); err != nil {
			return err
		}
		f("no " + name)
		for _, bad := range []string{"", "\xff\xfe nonsense\n\x00"} {
			if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
				return err
			}
			f(strconv.Quote(bad) + " in " + name)
		}
		return os.WriteFile(name, text, 0o600)
	})
}
