// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

func TestPKeys(t *testing.T) {
	tree := deviceTree(t)
	dir := tree.Path("class/infiniband/roce0/ports/1/pkeys")
	put := func(place, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, place), []byte(text+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := open(newScript(), "roce0", tree, &kernel{reg: always(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.PKeys(1); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "port 1") {
		t.Errorf("without a table: %v", err)
	}
	// Places are numbers, of which 10 comes after 9, and may be unused.
	for place, text := range map[string]string{"0": "0x7fff", "1": "0x0012", "2": "0x0000", "3": "0x8012", "10": "0xffff", "11": "0x0034"} {
		put(place, text)
	}
	keys, err := c.PKeys(1)
	if err != nil || !slices.Equal(keys, []ibdev.PKey{0x7fff, 0x12, 0, 0x8012, 0, 0, 0, 0, 0, 0, 0xffff, 0x34}) {
		t.Errorf("%#x, %v", keys, err)
	}
	if !keys[10].Full() || keys[0].Full() || keys[3].Partition() != 0x12 {
		t.Errorf("%#x", keys)
	}
	for key, want := range map[ibdev.PKey]int{0xffff: 10, 0x7fff: 10, 0x12: 3, 0x8012: 3, 0x8034: 11, 0x34: 11, 0x56: -1} {
		got, err := c.PKeyIndex(1, key)
		switch {
		case want >= 0 && (got != want || err != nil):
			t.Errorf("%#x: %d, %v; want %d", key, got, err, want)
		case want < 0 && (!errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "0x7fff at 0, 0x0012 at 1, 0x8012 at 3")):
			t.Errorf("%#x: %d, %v; want ENOENT, and what there is", key, got, err)
		}
	}
	for _, key := range []ibdev.PKey{0, 0x8000} {
		if _, err := c.PKeyIndex(1, key); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "names no partition") {
			t.Errorf("%#x: %v", key, err)
		}
	}
	put("4", "garbage")
	if _, err := c.PKeyIndex(1, 0xffff); err == nil || !strings.Contains(err.Error(), `"garbage" is no P_Key`) {
		t.Errorf("garbage: %v", err)
	}
	for _, port := range []int{0, 2, -1} {
		if _, err := c.PKeys(port); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("port %d: %v", port, err)
		}
	}
}
