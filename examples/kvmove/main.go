// SPDX-License-Identifier: Apache-2.0

// Command kvmove moves blocks of a KV cache from a prefill side to decoders. The blocks lie
// scattered, in another order on each side. Each request is moved by one write, within a
// deadline, and the decoder is notified with the request's number when all of its bytes are
// there. A decoder that dies does not stop the others.
//
//	kvmove -decode 127.0.0.1:7472                      decodes
//	kvmove -prefill 127.0.0.1:7472,127.0.0.1:7473      moves requests to these decoders
//	kvmove -fabric memory                              does both, without a NIC
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

var (
	nic      = flag.String("nic", "mlx5_0", "the RDMA `NIC`")
	gpu      = flag.String("gpu", "host", "the memory of the cache: host, cuda:0 and others")
	decode   = flag.String("decode", "", "decode, at this `address`")
	prefill  = flag.String("prefill", "", "move requests to the decoders at these `addresses`, separated by commas")
	fabric   = flag.String("fabric", "", `"memory": all sides in this process, without a NIC`)
	requests = flag.Int("requests", 8, "the `number` of requests for each decoder")
	dieAfter = flag.Int("die-after", 0, "die after this `number` of requests, as in a crash; 0: do not die")
	deadline = flag.Duration("deadline", 5*time.Second, "the time for one request")
)

const (
	block  = 16 << 10 // bytes
	blocks = 64       // of a request

	ahead   = 2               // requests that may arrive before the decoder has taken one
	silence = 2 * time.Second // the wait for a silent peer
)

// The places of a request's blocks: every second block at the prefill side, four strands at the
// decoder.
var (
	there = gpurdma.Interleaved(gpurdma.Extent{Len: block}, gpurdma.Dim{Count: 4, Stride: block}, gpurdma.Dim{Count: blocks / 4, Stride: 4 * block})
	here  = gpurdma.Interleaved(gpurdma.Extent{Len: block}, gpurdma.Dim{Count: blocks, Stride: 2 * block})
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
	fab, err := gpurdma.Open(*nic)
	if err != nil {
		return err
	}
	defer fab.Close()
	if *decode != "" {
		return decodeAt(ctx, fab, *decode, *dieAfter, func() { os.Exit(1) }, out)
	}
	return prefillTo(ctx, fab, strings.Split(*prefill, ","), out)
}

// inMemory has three decoders. The machine of one of them dies after its first request.
func inMemory(ctx context.Context, out io.Writer) error {
	net := fabrictest.NewNetwork(fabrictest.Options{})
	decoders := []string{"127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"}
	var all sync.WaitGroup
	defer all.Wait()
	for i, addr := range decoders {
		fab, err := net.Open("mlx5_0")
		if err != nil {
			return err
		}
		defer fab.Close()
		all.Go(func() { // the second one dies after 1 request
			if err := decodeAt(ctx, fab, addr, i%2, func() { net.Lose(fab) }, out); err != nil {
				fmt.Fprintln(out, addr, "has ended:", err)
			}
		})
	}
	fab, err := net.Open("mlx5_0")
	if err != nil {
		return err
	}
	defer fab.Close()
	return prefillTo(ctx, fab, decoders, out)
}

// decodeAt lends a cache to one prefill side, and takes its requests. It dies after some of them,
// unless dies is 0.
func decodeAt(ctx context.Context, fab *gpurdma.Fabric, addr string, dies int, die func(), out io.Writer) error {
	ln, err := fab.Listen(addr, gpurdma.Config{PeerTimeout: silence, Messages: ahead})
	if err != nil {
		return err
	}
	cache, err := fab.Alloc(ctx, *gpu, blocks*block)
	if err != nil {
		return err
	}
	conn, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Export("cache", cache.All(), gpurdma.WriteOnly); err != nil {
		return err
	}
	for i := range *requests {
		note, err := conn.ReceiveNotification(ctx)
		if err != nil {
			return err
		}
		if err := cache.Flush(ctx); err != nil { // for a kernel that is running
			return err
		}
		fmt.Fprintln(out, addr, "has request", binary.BigEndian.Uint64(note))
		if i+1 == dies {
			die()
		}
	}
	<-conn.Done() // the prefill side ends the connection when its last write is acknowledged
	return nil
}

// prefillTo moves requests to all decoders in parallel.
func prefillTo(ctx context.Context, fab *gpurdma.Fabric, decoders []string, out io.Writer) error {
	cache, err := fab.Alloc(ctx, *gpu, 2*blocks*block)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, addr := range decoders {
		all.Go(func() {
			moved, err := moveTo(ctx, fab, cache, addr)
			fmt.Fprintln(out, addr, "got", moved, "requests:", err)
		})
	}
	all.Wait()
	return nil
}

// moveTo moves requests to one decoder, and returns how many have arrived.
func moveTo(ctx context.Context, fab *gpurdma.Fabric, cache *gpurdma.Buffer, addr string) (moved int, err error) {
	conn, err := dial(ctx, fab, addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	remote, err := conn.Import(ctx, "cache")
	if err != nil {
		return 0, err
	}
	for id := range uint64(*requests) {
		if err := move(ctx, conn, remote.View(there), cache.View(here), id); err != nil {
			return int(id), err
		}
	}
	return *requests, nil
}

// move moves one request within the deadline. After the deadline no more of it is sent.
func move(ctx context.Context, conn *gpurdma.Conn, to gpurdma.Remote, from gpurdma.Span, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, *deadline)
	defer cancel()
	return conn.Write(ctx, to, from, gpurdma.Notify(binary.BigEndian.AppendUint64(nil, id)))
}

// dial connects to a decoder that may not listen yet.
func dial(ctx context.Context, fab *gpurdma.Fabric, addr string) (*gpurdma.Conn, error) {
	for try := 0; ; try++ {
		conn, err := fab.Dial(ctx, addr, gpurdma.Config{PeerTimeout: silence})
		if err == nil || ctx.Err() != nil || try == 300 {
			return conn, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
