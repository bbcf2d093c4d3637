// SPDX-License-Identifier: Apache-2.0

package doubles

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// OnGPU makes a test run in the testbed, where use chooses a double, and on a
// machine with a real GPU with the real library (make hardware-test), unless it
// needs what only a double has. It reports whether the GPU is real.
func OnGPU(t testing.TB, needsDouble bool, use func()) (real bool) {
	t.Helper()
	if os.Getenv("GPURDMA_HARDWARE") != "" {
		if needsDouble {
			t.Skip("needs the double's knobs")
		}
		return true
	}
	testenv.VM(t)
	use()
	return false
}

// Calls is a double's log.
type Calls struct{ path string }

// Log lets the double write down its calls from here on.
func Log(t testing.TB) Calls {
	t.Helper()
	c := Calls{filepath.Join(t.TempDir(), "calls")}
	t.Setenv("DOUBLE_LOG", c.path)
	return c
}

// Count is how often a function was called and not made to fail.
func (c Calls) Count(t testing.TB, function string) int {
	t.Helper()
	return len(c.Args(t, function))
}

// Args are the arguments of these calls, a text each.
func (c Calls) Args(t testing.TB, function string) []string {
	t.Helper()
	text, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, " ")
		if name == function && !strings.HasPrefix(rest, "(made to fail)") {
			out = append(out, strings.TrimSpace(rest))
		}
	}
	return out
}

// Balanced fails the test unless what was taken was given back: pairs has the
// function that takes, and the one that gives back.
func (c Calls) Balanced(t testing.TB, pairs map[string]string) {
	t.Helper()
	for take, give := range pairs {
		if a, b := c.Count(t, take), c.Count(t, give); a != b {
			t.Errorf("%d calls of %s, and %d of %s", a, take, b, give)
		}
	}
}

// Words fails the test unless err says all of them.
func Words(t testing.TB, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// Sees fails the test unless the dma-buf shows want at offset: through mmap of
// the descriptor, which has no part in how it was written.
func Sees(t testing.TB, buf *dmabuf.Buf, offset int64, want []byte) {
	t.Helper()
	m, err := buf.Map(0, offset+int64(len(want)), dmabuf.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	got := make([]byte, len(want))
	if _, err := m.ReadAt(got, offset); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the dma-buf shows other bytes at %#x", offset)
	}
}

// Random makes n bytes, the same ones each time.
func Random(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}
