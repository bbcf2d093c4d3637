// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
)

// The NIC and the allocator of the examples are the testbed's when tests run them.
const (
	exampleNIC  = "rxe0"
	exampleSpec = "drm:vgem"
)

// Two endpoints: a host that serves memory, and a client that writes to it and reads it. Here
// both are in one process.
func ExampleEndpoint() {
	if err := writeAndRead(context.Background()); err != nil {
		log.Print(err)
	}
}

func writeAndRead(ctx context.Context) (err error) {
	nic, err := memory.OpenNIC(exampleNIC, memory.NICOptions{})
	if err != nil {
		return err
	}
	defer closed(nic, &err)
	server, client, toServer, toClient, done, err := connected(ctx, nic)
	if err != nil {
		return err
	}
	defer done(&err)

	// The server gives the client a key to a GPU's memory.
	served, err := gpuBuffer(ctx, nic, 1<<20)
	if err != nil {
		return err
	}
	defer released(served, &err)
	mine, err := server.Share(toClient, served.All(), ibvfd.AccessRemoteRead|ibvfd.AccessRemoteWrite)
	if err != nil {
		return err
	}
	if err := server.Offer(ctx, toClient, mine); err != nil {
		return err
	}

	// The client writes to it and, fenced, reads it back.
	remote, err := client.Offered(ctx, toServer)
	if err != nil {
		return err
	}
	host, err := nic.AllocHost(128 << 10)
	if err != nil {
		return err
	}
	defer released(host, &err)
	want := bytes.Repeat([]byte("gpurdma "), 8<<10)
	if _, err := host.WriteAt(want, 0); err != nil {
		return err
	}
	first := memory.Span{Buf: host, Length: 64 << 10}
	second := memory.Span{Buf: host, Offset: 64 << 10, Length: 64 << 10}
	there := remote.Part(4096, 64<<10)
	if err := client.Write(first, toServer, there, "write"); err != nil {
		return err
	}
	err = client.ReadMsg(rma.Msg{
		Local: []memory.Span{second}, Peer: toServer, Remote: []memory.RemoteSpan{there}, Context: "read",
	}, operation.FlagFence)
	if err != nil {
		return err
	}
	if err := await(ctx, client, 2); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := host.ReadAt(got, 64<<10); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("other bytes came back")
	}
	return nil
}

// await takes n completions; an error in one of them is an error.
func await(ctx context.Context, e *engine.Endpoint, n int) error {
	list := make([]operation.Completion, 16)
	for n > 0 {
		got, err := e.Wait(ctx, list)
		if err != nil {
			return err
		}
		for _, c := range list[:got] {
			if c.Err != nil {
				return fmt.Errorf("%v: %w", c.Context, c.Err)
			}
		}
		n -= got
	}
	return nil
}

// connected makes two connected endpoints.
func connected(ctx context.Context, nic *memory.NIC) (server, client *engine.Endpoint, toServer, toClient operation.Peer, done func(*error), err error) {
	server, err = engine.NewEndpoint(nic, engine.EndpointOptions{})
	if err != nil {
		return
	}
	client, err = engine.NewEndpoint(nic, engine.EndpointOptions{})
	if err != nil {
		err = errors.Join(err, server.Close())
		return
	}
	done = func(err *error) { *err = errors.Join(*err, client.Close(), server.Close()) }
	addr, err := server.Listen("127.0.0.1:0")
	if err == nil {
		toServer, err = client.Connect(ctx, addr.String())
	}
	if err == nil {
		toClient, err = server.Accept(ctx)
	}
	if err != nil {
		done(&err)
	}
	return
}

// gpuBuffer returns memory of the allocator.
func gpuBuffer(ctx context.Context, nic *memory.NIC, size int64) (*memory.Buffer, error) {
	a, err := gpualloc.Open(exampleSpec, gpualloc.Env{})
	if err != nil {
		return nil, err
	}
	b, err := nic.Allocate(ctx, a, size, memory.BufferOptions{})
	return b, errors.Join(err, a.Close())
}

func closed(c interface{ Close() error }, err *error) { *err = errors.Join(*err, c.Close()) }

// released releases a Buffer to which a peer may still have a key.
func released(b *memory.Buffer, err *error) {
	*err = errors.Join(*err, b.Release())
}
