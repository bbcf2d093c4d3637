// SPDX-License-Identifier: Apache-2.0

// Command hello lends memory to a peer, which writes, reads and adds there.
//
//	hello -listen 127.0.0.1:7471           lends memory to one peer
//	hello -connect 127.0.0.1:7471          uses it
//	hello -fabric memory                   does both, without a NIC
//
// For other addresses than loopback ones a program sets Config.TLS, as the example fanin does.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

var (
	nic     = flag.String("nic", "mlx5_0", "the RDMA `NIC`")
	gpu     = flag.String("gpu", "host", "the memory to lend: host, cuda:0 and others")
	listen  = flag.String("listen", "", "lend memory at this `address`")
	connect = flag.String("connect", "", "use the memory that is lent at this `address`")
	fabric  = flag.String("fabric", "", `"memory": both sides in this process, without a NIC`)
)

func main() {
	flag.Parse()
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	var fab *gpurdma.Fabric
	if *fabric == "memory" {
		fab, *listen, *connect = fabrictest.New(), "127.0.0.1:7471", "127.0.0.1:7471"
	} else if fab, err = gpurdma.Open(*nic); err != nil {
		return err
	}
	defer fab.Close() // closes everything that was made of it
	if *listen != "" {
		ln, err := fab.Listen(*listen, gpurdma.Config{})
		if err != nil {
			return err
		}
		if *connect == "" {
			return lend(ctx, fab, ln, out)
		}
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		go func() { cancel(lend(ctx, fab, ln, out)) }()
	}
	return use(ctx, fab, out)
}

// lend lends memory to one peer, until the peer ends the connection.
func lend(ctx context.Context, fab *gpurdma.Fabric, ln *gpurdma.Listener, out io.Writer) error {
	weights, err := fab.Alloc(ctx, *gpu, 64<<10)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "lent memory, %s: %v\n", *gpu, weights.Path())
	conn, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	err = conn.Export("weights", weights.All(), gpurdma.ReadWrite|gpurdma.Atomic)
	if err != nil {
		return err
	}
	<-conn.Done()
	return nil
}

// use writes to the peer's memory, reads it back, and adds to a number in it.
func use(ctx context.Context, fab *gpurdma.Fabric, out io.Writer) error {
	local, err := fab.Alloc(ctx, "host", 64<<10)
	if err != nil {
		return err
	}
	text := []byte("hello")
	if _, err := local.WriteAt(text, 8); err != nil {
		return err
	}
	conn, err := fab.Dial(ctx, *connect, gpurdma.Config{})
	if err != nil {
		return err
	}
	weights, err := conn.Import(ctx, "weights")
	if err != nil {
		return err
	}
	err = conn.Write(ctx, weights.All(), local.All())
	if err != nil {
		return err
	}
	err = conn.Read(ctx, local.Range(0, 5), weights.Range(8, 5))
	if err != nil {
		return err
	}
	if _, err := local.ReadAt(text, 0); err != nil {
		return err
	}
	old, err := conn.FetchAdd(ctx, weights.Range(0, 8), 1)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "read %q; the number was %d\nlocal memory, host: %v\n%v\n", text, old, local.Path(), conn)
	return conn.Close()
}
