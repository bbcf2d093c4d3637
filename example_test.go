// SPDX-License-Identifier: Apache-2.0

package gpurdma_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

// One side lends memory to the other, which writes there and notifies it.
func Example() {
	ctx := context.Background()
	fab := fabrictest.New() // a program calls gpurdma.Open("mlx5_0")
	defer fab.Close()

	// The side that lends.
	weights, err := fab.Alloc(ctx, "cuda:0", 64<<10)
	if err != nil {
		log.Fatal(err)
	}
	ln, err := fab.Listen("127.0.0.1:7471", gpurdma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() {
		conn, err := ln.Accept(ctx)
		if err == nil {
			err = conn.Export("weights", weights.All(), gpurdma.ReadWrite)
		}
		if err == nil {
			var note []byte
			note, err = conn.ReceiveNotification(ctx)
			fmt.Printf("%s\n", note)
		}
		served <- err
	}()

	// The side that writes.
	conn, err := fab.Dial(ctx, "127.0.0.1:7471", gpurdma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	remote, err := conn.Import(ctx, "weights")
	if err != nil {
		log.Fatal(err)
	}
	local, err := fab.Alloc(ctx, "host", 64<<10)
	if err != nil {
		log.Fatal(err)
	}
	if err := conn.Write(ctx, remote.All(), local.All(), gpurdma.Notify([]byte("all of it is there"))); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	// Output: all of it is there
}

// An event loop posts slices of operations, and takes completions with its own tags.
func ExampleQueue() {
	ctx := context.Background()
	fab := fabrictest.New()
	defer fab.Close()
	conn, remote, local := connected(ctx, fab)

	q := fab.NewQueue(64)
	defer q.Close()
	var ops []gpurdma.Op
	for i := range int64(4) {
		ops = append(ops, gpurdma.Op{
			Kind: gpurdma.OpWrite, Local: local.Range(i*8, 8), Remote: remote.Range(i*8, 8), Tag: uint64(i),
		})
	}
	if _, err := q.Post(conn, ops); err != nil {
		log.Fatal(err)
	}
	done := make([]gpurdma.Completion, 64)
	for left := len(ops); left > 0; {
		n, err := q.Wait(ctx, done)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range done[:n] {
			fmt.Println(c.Kind, c.Tag, c.Len, c.Err)
		}
		left -= n
	}
	// Output:
	// write 0 8 <nil>
	// write 1 8 <nil>
	// write 2 8 <nil>
	// write 3 8 <nil>
}

// A transfer that is not wanted any more is withdrawn.
func ExampleTransfer_Cancel() {
	ctx := context.Background()
	fab := fabrictest.New()
	defer fab.Close()
	conn, remote, local := connected(ctx, fab)
	local.SetReady(func(ctx context.Context) error { // the GPU never ends
		<-ctx.Done()
		return ctx.Err()
	})
	t, err := conn.Start(ctx, gpurdma.Op{Kind: gpurdma.OpWrite, Local: local.All(), Remote: remote})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("withdrawn:", t.Cancel())
	<-t.Done()
	// Output: withdrawn: true
}

// Blocks that are not contiguous are seen through layouts, which may differ on the two sides.
func ExampleView() {
	ctx := context.Background()
	fab := fabrictest.New()
	defer fab.Close()
	conn, remote, local := connected(ctx, fab)
	if _, err := local.WriteAt([]byte("a.b.c.d."), 0); err != nil {
		log.Fatal(err)
	}
	letters := gpurdma.Interleaved(gpurdma.Extent{Len: 1}, gpurdma.Dim{Count: 4, Stride: 2})
	if err := conn.Write(ctx, remote.Range(0, 4), gpurdma.View(letters, local)); err != nil {
		log.Fatal(err)
	}
	if err := conn.Read(ctx, local.Range(0, 4), remote.Range(0, 4)); err != nil {
		log.Fatal(err)
	}
	p := make([]byte, 4)
	if _, err := local.ReadAt(p, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", p)
	// Output: abcd
}

// connected returns a connection of a fabric to itself, memory of its other end, and local
// memory.
func connected(ctx context.Context, fab *gpurdma.Fabric) (*gpurdma.Conn, gpurdma.Remote, *gpurdma.Buffer) {
	local, err := fab.Alloc(ctx, "host", 64)
	if err != nil {
		log.Fatal(err)
	}
	memory, err := fab.Alloc(ctx, "host", 64)
	if err != nil {
		log.Fatal(err)
	}
	ln, err := fab.Listen("127.0.0.1:7471", gpurdma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		conn, err := ln.Accept(ctx)
		if err == nil {
			err = conn.Export("memory", memory.All(), gpurdma.ReadWrite)
		}
		if err != nil {
			log.Fatal(err)
		}
	}()
	conn, err := fab.Dial(ctx, "127.0.0.1:7471", gpurdma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	remote, err := conn.Import(ctx, "memory")
	if err != nil {
		log.Fatal(err)
	}
	return conn, remote, local
}
