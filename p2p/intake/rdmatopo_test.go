// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// A dump cannot unpack to more than the limits.
func TestDumpBombs(t *testing.T) {
	testenv.Exhaustive(t)
	packed := func(n int) string {
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		if _, err := z.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(b.Bytes())
	}
	one := func(i int, config string, names ...string) map[string]any {
		return map[string]any{
			"realpath": fmt.Sprintf("/sys/devices/pci0000:00/%04x:%02x:%02x.%d", i>>16, i>>8&0xff, i>>3&0x1f, i&7), "config": config,
			"modalias": "pci:v00008086d00001234sv00000000sd00000000bc02sc00i00", "subsystems": map[string]any{"infiniband": names},
		}
	}
	// One page of configuration space is what a function has.
	for n, ok := range map[int]bool{256: true, 4096: true, 4097: false, 1 << 20: false} {
		_, err := fromDump(bytes.NewReader(marshalled(t, []any{one(0, packed(n))})))
		if (err == nil) != ok {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	var many []any
	config := packed(4096)
	for i := range functionLimit + 1 {
		many = append(many, one(i, config))
	}
	if _, err := fromDump(bytes.NewReader(marshalled(t, many))); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Error(err)
	}
	if _, err := fromDump(bytes.NewReader(marshalled(t, []any{one(0, config, make([]string, namesLimit+1)...)}))); err == nil || !strings.Contains(err.Error(), "too many RDMA devices") {
		t.Error(err)
	}
	if _, err := fromDump(strings.NewReader("[")); err == nil {
		t.Error("an end that is missing is none")
	}
}

func marshalled(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A hostile dump crashes nothing, has no name outside of its tree, and makes no good machine:
// a dump lacks the files that decide.
func FuzzDump(f *testing.F) {
	for _, name := range []string{"small-hgx", "small-mi300"} {
		all := testenv.RDMATopoDump(f, testenv.Machines[name]().Write(f))
		f.Add(marshalled(f, all))
		for _, d := range all {
			f.Add(marshalled(f, []any{d}))
		}
		whole := marshalled(f, all[:2])
		for n := 0; n < len(whole); n += 1 + len(whole)/20 {
			f.Add(whole[:n])
		}
	}
	for _, odd := range []string{"", "[", "[]", "[]]", "[null]", "[{}]", "[[]]", " [1,2]", `[{"realpath":"/sys/devices/pci0000:00/../../../x/0000:01:00.0"}]`, `["` + strings.Repeat("x", 1<<16)} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := fromDump(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, snapshot.Err) {
				t.Errorf("%v", err)
			}
			return
		}
		for name, e := range tree.All() {
			outside := !filepath.IsLocal(name) || path.Clean(name) != name
			if outside || e.Link != "" && !filepath.IsLocal(path.Join(path.Dir(name), e.Link)) {
				t.Errorf("%q leads to %q", name, e.Link)
			}
		}
		in, done := files.Mount(tree)
		defer done()
		m := machine.Source{Root: in}.Open()
		gpus, _ := drivers.GPUs(m) // the errors are of devices that cannot be read
		nics, _ := drivers.NICs(m)
		for _, g := range gpus {
			for _, n := range nics {
				if p := p2p.Judge(m, g, n); p.Verdict.Outcome() == chain.Direct {
					t.Errorf("%s is direct", p.Name())
				}
			}
		}
	})
}
