// SPDX-License-Identifier: Apache-2.0

package fabrictest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
)

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Both sides of a program may use the Fabric of New.
func TestNew(t *testing.T) {
	fab := fabrictest.New()
	ln := must(fab.Listen("localhost:0", gpurdma.Config{}))(t)
	client := must(fab.Dial(limited(t), ln.Addr().String(), gpurdma.Config{}))(t)
	server := must(ln.Accept(limited(t)))(t)
	if err := client.Send(limited(t), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if m := must(server.Receive(limited(t)))(t); string(m) != "hello" {
		t.Errorf("%q", m)
	}
	if err := fab.Close(); err != nil {
		t.Error(err)
	}
}

// Networks do not know of one another: the same address may be used in each.
func TestNetworksAreApart(t *testing.T) {
	const addr = "127.0.0.1:7471"
	fab := fabrictest.New()
	defer fab.Close()
	ln := must(fab.Listen(addr, gpurdma.Config{}))(t)
	if _, err := fab.Listen(addr, gpurdma.Config{}); err == nil {
		t.Error("listened twice")
	}
	other := fabrictest.New()
	defer other.Close()
	if _, err := other.Dial(limited(t), ln.Addr().String(), gpurdma.Config{}); err == nil {
		t.Error("connected to another network")
	}
	must(other.Listen(addr, gpurdma.Config{}))(t)
	for what, cfg := range map[string]gpurdma.Config{"a NIC": {NIC: "mlx5_9"}, "a partition": {PKey: 0x8001}} {
		if _, err := fab.Dial(limited(t), addr, cfg); err == nil {
			t.Errorf("%s that is not there", what)
		}
	}
	if _, err := fab.Dial(limited(t), "rdma_cm://10.0.0.1:7471", gpurdma.Config{}); err == nil {
		t.Error("connected over rdma_cm")
	}
}

// Memory of the program's is held while it is registered.
func TestMemory(t *testing.T) {
	fab := fabrictest.New()
	defer fab.Close()
	for staged, make := range map[bool]func(int64) (*fabrictest.Memory, error){false: fabrictest.NewMemory, true: fabrictest.NewStagedMemory} {
		m := must(make(100))(t)
		must(m.WriteAt([]byte("hello"), 90))(t)
		if n, err := m.WriteAt([]byte("hello"), 96); n != 0 || !errors.Is(err, failure.ErrRange) {
			t.Errorf("written beyond the end: %d, %v", n, err)
		}
		b := must(fab.Register(limited(t), m))(t)
		if b.Path().Staged != staged {
			t.Errorf("%v", b.Path())
		}
		if err := m.Close(); !errors.Is(err, failure.ErrInUse) {
			t.Errorf("closed while it is registered: %v", err)
		}
		got := [5]byte{}
		must(b.ReadAt(got[:], 90))(t)
		if string(got[:]) != "hello" {
			t.Errorf("%q", got)
		}
		if err := errors.Join(b.Close(), m.Close(), m.Close()); err != nil {
			t.Error(err)
		}
		if _, err := m.ReadAt(got[:], 0); !errors.Is(err, os.ErrClosed) || m.Size() != 0 {
			t.Errorf("%v, %d bytes", err, m.Size())
		}
		if _, err := make(0); err == nil {
			t.Error("no bytes were made")
		}
	}
}

// NICs may have no atomics, and a network may be in a hurry.
func TestOptions(t *testing.T) {
	net := fabrictest.NewNetwork(fabrictest.Options{NoAtomics: true, TimeScale: 0.001})
	a, b := must(net.Open())(t), must(net.Open())(t)
	ln := must(b.Listen("127.0.0.1:1", gpurdma.Config{}))(t)
	client := must(a.Dial(limited(t), "127.0.0.1:1", gpurdma.Config{}))(t)
	server := must(ln.Accept(limited(t)))(t)
	mine, theirs := must(a.Alloc(limited(t), "host", 8))(t), must(b.Alloc(limited(t), "rocm:1", 8))(t)
	if err := server.Export("word", theirs.All(), gpurdma.ReadWrite); err != nil {
		t.Fatal(err)
	}
	word := must(client.Import(limited(t), "word"))(t)
	if _, err := client.FetchAdd(limited(t), word, 1); err == nil {
		t.Error("the NIC has atomics")
	}
	net.Cut(a, b)
	start := time.Now()
	if err := client.Write(limited(t), word, mine.All()); !errors.Is(err, gpurdma.ErrPeerGone) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("a thousandth of the time took %v", took)
	}
	if net.InUse() == 0 {
		t.Error("nothing is in use")
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if n := net.InUse(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// A network refuses what a machine with a NIC refuses, with the same errors.
func TestRefused(t *testing.T) {
	net := fabrictest.NewNetwork(fabrictest.Options{})
	a, b := must(net.Open())(t), must(net.Open())(t)
	defer a.Close()
	defer b.Close()
	must(b.Listen("127.0.0.1:1", gpurdma.Config{}))(t)
	must(b.Listen("10.0.0.1:1", gpurdma.Config{AllowPlaintext: true}))(t)
	for name, c := range map[string]struct {
		addr string
		cfg  gpurdma.Config
		want error
		text string
	}{
		"no TLS":         {"10.0.0.1:3", gpurdma.Config{}, gpurdma.ErrUnsafe, "10.0.0.1:3"},
		"no TLS, all":    {":3", gpurdma.Config{}, gpurdma.ErrUnsafe, "AllowPlaintext"},
		"no TLS, a name": {"weights.example.com:1", gpurdma.Config{}, gpurdma.ErrUnsafe, "set TLS"},
		"a port":         {"127.0.0.1:2", gpurdma.Config{Port: 7}, failure.ErrRange, "Port 7"},
		"an MTU":         {"127.0.0.1:2", gpurdma.Config{MTU: 1000}, failure.ErrRange, "Config.MTU 1000"},
		"a large MTU":    {"127.0.0.1:2", gpurdma.Config{MTU: 9000}, failure.ErrRange, "Config.MTU 9000"},
		"a hello":        {"127.0.0.1:2", gpurdma.Config{Hello: make([]byte, 4<<10+1)}, failure.ErrRange, "Config.Hello"},
	} {
		if ln, err := a.Listen(c.addr, c.cfg); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: Listen: %v, %v", name, ln, err)
		}
	}
	for name, c := range map[string]struct {
		addr string
		cfg  gpurdma.Config
		want error
	}{
		"no TLS":                {"10.0.0.1:1", gpurdma.Config{}, gpurdma.ErrUnsafe},
		"no TLS, and no remedy": {"10.0.0.1:1", gpurdma.Config{AllowPlaintext: true}, nil},
		"loopback":              {"127.0.0.1:1", gpurdma.Config{}, nil},
		"a port":                {"127.0.0.1:1", gpurdma.Config{Port: 7}, failure.ErrRange},
		"port 1":                {"127.0.0.1:1", gpurdma.Config{Port: 1, MTU: 1024}, nil},
		"a GID":                 {"127.0.0.1:1", gpurdma.Config{GID: gid.Wish{Family: gid.IPv6}}, gid.ErrNone},
		"its GID":               {"127.0.0.1:1", gpurdma.Config{GID: gid.Wish{Family: gid.IPv4, RoCE: 2}}, nil},
	} {
		if conn, err := a.Dial(limited(t), c.addr, c.cfg); !errors.Is(err, c.want) {
			t.Errorf("%s: Dial: %v, %v", name, conn, err)
		}
	}
	for _, spec := range []string{"kuda:0", "", "cuda", "cuda:zero", "drm:", "heap", "stage", "cuda:0/"} {
		_, err := a.Alloc(limited(t), spec, 8)
		_, real := gpualloc.Open(spec, gpualloc.Env{})
		if real == nil || errors.Is(real, gpualloc.ErrUnavailable) {
			continue // the machine has it
		}
		if !errors.Is(err, gpualloc.ErrUnknownSpec) || !errors.Is(real, gpualloc.ErrUnknownSpec) || !strings.Contains(err.Error(), "heap:system") {
			t.Errorf("%q: %v, and on a machine: %v", spec, err, real)
		}
	}
	for _, spec := range []string{"auto", "host", "staged", "udmabuf", "heap:system", "drm:vgem", "drm:renderD128", "drm:0000:03:00.0/system", "drm:xe/vram-only", "cuda:0", "cuda:0/vmm", "rocm:1", "ze:0", "ze:0000:03:00.0", "rocm:GPU-0123456789abcdef", "GPU-01234567-89ab-cdef-0123-456789abcdef", "cuda:GPU-01234567-89ab-cdef-0123-456789abcdef"} {
		must(a.Alloc(limited(t), spec, 8))(t)
	}
}

// A connection is down while its port is, and there is no other one meanwhile.
func TestRailDown(t *testing.T) {
	net := fabrictest.NewNetwork(fabrictest.Options{})
	a := must(net.Open("mlx5_0"))(t)
	defer a.Close()
	must(a.Listen("127.0.0.1:1", gpurdma.Config{}))(t)
	conn := must(a.Dial(limited(t), "127.0.0.1:1", gpurdma.Config{}))(t)
	for _, up := range []bool{true, false, true} {
		net.NIC(a, "").SetPort(up)
		if r := conn.Rails()[0]; r.Up != up || strings.Contains(r.String(), "down") == up || strings.Contains(conn.String(), "down") == up {
			t.Errorf("%v, but the port is up: %v", r, up)
		}
		other, err := a.Dial(limited(t), "127.0.0.1:1", gpurdma.Config{})
		if up != (err == nil) || !up && !errors.Is(err, unix.ENETDOWN) {
			t.Errorf("the port is up: %v; a connection: %v", up, err)
		}
		if err == nil {
			_ = other.Close()
		}
	}
}
