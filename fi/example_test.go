// SPDX-License-Identifier: Apache-2.0

package fi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/fi"
	"github.com/gpurdma/gpurdma/gpualloc"
)

// The NIC and the allocator of the examples are the testbed's when tests run them.
const (
	exampleNIC  = "rxe0"
	exampleSpec = "drm:vgem"
)

// Two endpoints: a server that lends memory, and a client that writes to it and reads it. Here
// both are in one process.
func ExampleEndpoint() {
	if err := writeAndRead(context.Background()); err != nil {
		log.Print(err)
	}
}

func writeAndRead(ctx context.Context) (err error) {
	d, err := fi.Open(exampleNIC, fi.DomainOptions{})
	if err != nil {
		return err
	}
	defer closed(d, &err)
	server, client, done, err := connected(ctx, d)
	if err != nil {
		return err
	}
	defer done(&err)

	// The server gives the client a key to a GPU's memory.
	memory, err := gpuMemory(ctx, d, 1<<20)
	if err != nil {
		return err
	}
	defer released(memory, &err)
	key, err := server.Key(memory.All(), fi.AddrUnspec, fi.RemoteRead|fi.RemoteWrite)
	if err != nil {
		return err
	}
	if err := server.Offer(ctx, fi.AddrUnspec, key); err != nil {
		return err
	}

	// The client writes to it and, fenced, reads it back.
	remote, err := client.Offered(ctx, fi.AddrUnspec)
	if err != nil {
		return err
	}
	host, err := d.AllocHost(128 << 10)
	if err != nil {
		return err
	}
	defer released(host, &err)
	want := bytes.Repeat([]byte("gpurdma "), 8<<10)
	if _, err := host.WriteAt(want, 0); err != nil {
		return err
	}
	there := remote.Part(4096, 64<<10)
	if err := client.Write(host.Part(0, 64<<10), fi.AddrUnspec, there, "write"); err != nil {
		return err
	}
	err = client.ReadMsg(fi.MsgRMA{
		IOV: []fi.IOV{host.Part(64<<10, 64<<10)}, RMAIOV: []fi.RMAIOV{there}, Context: "read",
	}, fi.Fence)
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

// await reads n entries; one of an operation that has failed is an error.
func await(ctx context.Context, e *fi.Endpoint, n int) error {
	list := make([]fi.CQEntry, 16)
	for n > 0 {
		got, err := e.CQ().Sread(ctx, list)
		if errors.Is(err, fi.EAVAIL) {
			failed, err := e.CQ().ReadErr()
			if err != nil {
				return err
			}
			return fmt.Errorf("%v: %w", failed.OpContext, failed)
		}
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// connected makes two connected endpoints.
func connected(ctx context.Context, d *fi.Domain) (server, client *fi.Endpoint, done func(*error), err error) {
	server, err = d.Endpoint(fi.EndpointOptions{})
	if err != nil {
		return
	}
	client, err = d.Endpoint(fi.EndpointOptions{})
	if err != nil {
		err = errors.Join(err, server.Close())
		return
	}
	done = func(err *error) { *err = errors.Join(*err, client.Close(), server.Close()) }
	addr, err := server.Listen("127.0.0.1:0")
	if err == nil {
		_, err = client.Connect(ctx, addr.String())
	}
	if err == nil {
		_, err = server.Accept(ctx)
	}
	if err != nil {
		done(&err)
	}
	return
}

// gpuMemory returns memory of the allocator.
func gpuMemory(ctx context.Context, d *fi.Domain, size int64) (*fi.MR, error) {
	a, err := gpualloc.Open(exampleSpec, gpualloc.Env{})
	if err != nil {
		return nil, err
	}
	m, err := d.Allocate(ctx, a, size, fi.MROptions{})
	return m, errors.Join(err, a.Close())
}

func closed(c interface{ Close() error }, err *error) { *err = errors.Join(*err, c.Close()) }

// released releases memory to which a peer may still have a key.
func released(m *fi.MR, err *error) { *err = errors.Join(*err, m.Release()) }
