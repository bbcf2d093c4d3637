// SPDX-License-Identifier: Apache-2.0

// Command failover writes blocks to another machine over several NICs, prints once a second how fast
// each of them is, and goes on while one of them loses its link. In the end it reads all blocks back
// and compares them.
//
//	failover -nic mlx5_0,mlx5_1 -serve :7471          lends memory
//	failover -nic mlx5_0,mlx5_1 -connect host:7471    writes to it
//	failover -fabric memory                           does both, without a NIC, and cuts a link
//
// Pull a cable while it runs, and plug it in again.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

var (
	nics    = flag.String("nic", "mlx5_0,mlx5_1", "the RDMA `NICs`, separated by commas; the other side has as many")
	gpu     = flag.String("gpu", "host", "the memory: host, cuda:0 and others")
	serve   = flag.String("serve", "", "lend memory, at this `address`")
	connect = flag.String("connect", "", "write to the memory at this `address`")
	fabric  = flag.String("fabric", "", `"memory": both sides in this process, without a NIC`)
	size    = flag.Int64("size", 64<<20, "the `bytes` of memory")
	rounds  = flag.Int("rounds", 16, "how often to write all of it")
	plain   = flag.Bool("plaintext", false, "allow an exchange between hosts without TLS")
)

func main() {
	flag.Parse()
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	if *fabric == "memory" {
		return inMemory(ctx, out)
	}
	fab, err := gpurdma.Open(strings.Split(*nics, ",")...)
	if err != nil {
		return err
	}
	defer fab.Close()
	if *serve != "" {
		return lend(ctx, fab, *serve)
	}
	return write(ctx, fab, *connect, func(int) {}, out)
}

// inMemory cuts a link in the middle, and mends it two rounds later.
func inMemory(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	net := fabrictest.NewNetwork(fabrictest.Options{})
	server, err := net.Open("mlx5_0", "mlx5_1")
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := net.Open("mlx5_0", "mlx5_1")
	if err != nil {
		return err
	}
	defer client.Close()
	served := make(chan error, 1)
	go func() { served <- lend(ctx, server, "127.0.0.1:7471") }()
	err = write(ctx, client, "127.0.0.1:7471", func(round int) {
		if at := round - *rounds/2; at == 0 || at == 2 {
			net.NIC(client, "mlx5_1").SetPort(at > 0)
		}
	}, out)
	cancel() // the server may not have a caller
	return errors.Join(err, <-served)
}

// config gives a link up when a NIC has had no answer for 2 seconds.
func config() gpurdma.Config {
	return gpurdma.Config{AllowPlaintext: *plain, PeerTimeout: 2 * time.Second}
}

// lend lends memory to one caller, until it has gone.
func lend(ctx context.Context, fab *gpurdma.Fabric, addr string) error {
	ln, err := fab.Listen(addr, config())
	if err != nil {
		return err
	}
	defer ln.Close()
	mem, err := fab.Alloc(ctx, *gpu, *size)
	if err != nil {
		return err
	}
	defer mem.Close()
	conn, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Export("blocks", mem.All(), gpurdma.ReadWrite); err != nil {
		return err
	}
	<-conn.Done()
	return nil
}

// write writes all blocks in rounds, and calls between after each round.
func write(ctx context.Context, fab *gpurdma.Fabric, addr string, between func(round int), out io.Writer) error {
	conn, err := dial(ctx, fab, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	theirs, err := conn.Import(ctx, "blocks")
	if err != nil {
		return err
	}
	mine, err := fab.Alloc(ctx, *gpu, *size)
	if err != nil {
		return err
	}
	defer mine.Close()
	want := make([]byte, *size)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	go watch(ctx, conn, out)
	for round := range *rounds {
		copy(want, fmt.Append(nil, "round ", round))
		if _, err := mine.WriteAt(want, 0); err != nil {
			return err
		}
		if err := conn.Write(ctx, theirs, mine.All()); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		between(round)
	}
	if _, err := mine.WriteAt(make([]byte, *size), 0); err != nil {
		return err
	}
	if err := conn.Read(ctx, mine.All(), theirs); err != nil {
		return err
	}
	got := make([]byte, *size)
	if _, err := mine.ReadAt(got, 0); err != nil {
		return err
	}
	for nic, s := range conn.Stats().ByNIC {
		fmt.Fprintf(out, "%s has moved %d MiB, %d parts of them again\n", nic, s.Bytes>>20, s.Repeats)
	}
	if !bytes.Equal(got, want) {
		return errors.New("the bytes that were read back are not those that were written")
	}
	fmt.Fprintf(out, "%d rounds of %d MiB, and all bytes are as they should be\n", *rounds, *size>>20)
	return nil
}

// dial waits for the server, and for the other rails.
func dial(ctx context.Context, fab *gpurdma.Fabric, addr string) (conn *gpurdma.Conn, err error) {
	for range 100 {
		if conn, err = fab.Dial(ctx, addr, config()); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for end := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		up := 0
		for _, r := range conn.Rails() {
			if r.Up {
				up++
			}
		}
		if up == len(fab.NICs()) {
			break
		}
	}
	return conn, err
}

// watch prints what happens to the rails.
func watch(ctx context.Context, conn *gpurdma.Conn, out io.Writer) {
	for r, err := range conn.Events(ctx) {
		if err == nil {
			fmt.Fprintf(out, "%v, %.0f MB/s\n", r, r.Rate/1e6)
		}
	}
}
