// SPDX-License-Identifier: Apache-2.0

package fabrictest_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/gpualloc"
	_ "github.com/gpurdma/gpurdma/gpualloc/cuda"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A real GPU's memory moves over a network in memory, which cannot register it: the bytes are
// staged by the vendor's own copies. GPURDMA_HARDWARE_GPU names the memory: cuda:0.
func TestHardwareStaged(t *testing.T) {
	spec := os.Getenv("GPURDMA_HARDWARE_GPU")
	if spec == "" {
		t.Skip("GPURDMA_HARDWARE_GPU names no GPU")
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
	defer cancel()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	alloc, err := gpualloc.Open(spec, gpualloc.Env{})
	ok(err)
	defer alloc.Close()
	const size = 8 << 20
	memory, err := alloc.Alloc(ctx, size, gpualloc.Options{Name: "staged"})
	ok(err)
	defer memory.Close()
	fab := fabrictest.New()
	gpu, err := fab.Register(ctx, memory)
	ok(err)
	defer gpu.Close()
	there, err := fab.Alloc(ctx, "host", size)
	ok(err)
	defer func() {
		ok(there.Close())
		ok(gpu.Close())
		ok(fab.Close())
	}()
	ln, err := fab.Listen("127.0.0.1:1", gpurdma.Config{})
	ok(err)
	go func() {
		if conn, err := ln.Accept(ctx); err == nil {
			_ = conn.Export("there", there.All(), gpurdma.ReadWrite)
		}
	}()
	conn, err := fab.Dial(ctx, "127.0.0.1:1", gpurdma.Config{})
	ok(err)
	remote, err := conn.Import(ctx, "there")
	ok(err)
	r := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(r.Uint32())
	}
	_, err = gpu.WriteAt(want, 0)
	ok(err)
	began := time.Now()
	ok(conn.Write(ctx, remote, gpu.All()))
	t.Logf("%v: 8 MiB out in %v", gpu.Path(), time.Since(began))
	got := make([]byte, size)
	_, err = there.ReadAt(got, 0)
	ok(err)
	if !bytes.Equal(got, want) {
		t.Error("other bytes came out of the GPU's memory")
	}
	// Back, in another order: the second half before the first.
	began = time.Now()
	b := conn.Batch()
	b.Read(gpu.Range(0, size/2), remote.Range(size/2, size/2))
	b.Read(gpu.Range(size/2, size/2), remote.Range(0, size/2))
	ok(b.Do(ctx))
	ok(gpu.Flush(ctx))
	t.Logf("8 MiB back in %v, staged %d bytes", time.Since(began), fab.Stats().Staged)
	_, err = memory.ReadAt(got, 0) // by the vendor's own copy
	ok(err)
	if !bytes.Equal(got, append(bytes.Clone(want[size/2:]), want[:size/2]...)) {
		t.Error("other bytes are in the GPU's memory")
	}
}
