// SPDX-License-Identifier: Apache-2.0

// Command fanin collects the results of many clients over mutual TLS: each client writes into a
// part of the server's memory that the server lends to this client alone. The server identifies a
// client by its certificate, rejects clients beyond its limit, and continues when clients die.
//
//	fanin -fabric memory                runs the server and all clients, without a NIC
//	fanin -nic rxe0 -listen HOST:PORT   runs them over a NIC
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

var (
	nic     = flag.String("nic", "mlx5_0", "the RDMA `NIC`")
	listen  = flag.String("listen", "127.0.0.1:7473", "the server's `address`")
	fabric  = flag.String("fabric", "", `"memory": without a NIC`)
	clients = flag.Int("clients", 32, "the `number` of clients that the server takes")
)

const (
	part    = 4 << 10         // bytes of each client
	hello   = "fanin/1"       // the protocol of client and server
	silence = 2 * time.Second // the wait for a silent peer
)

func main() {
	flag.Parse()
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	fab, err := open()
	if err != nil {
		return err
	}
	defer fab.Close()
	s := &server{out: out}
	config, err := ca.issue("server")
	if err != nil {
		return err
	}
	ln, err := fab.Listen(*listen, gpurdma.Config{TLS: config, Admit: admit, MaxConns: *clients, PeerTimeout: silence})
	if err != nil {
		return err
	}
	if s.memory, err = fab.Alloc(ctx, "host", int64(*clients*part)); err != nil {
		return err
	}
	goOn := make(chan struct{}) // closed when all clients are connected
	var all sync.WaitGroup
	for i := range *clients {
		config, err := ca.issue(fmt.Sprint("client-", i))
		if err != nil {
			return err
		}
		all.Go(func() {
			if err := client(ctx, config, goOn, i%8 == 7); err != nil {
				fmt.Fprintln(out, "client", i, "failed:", err)
			}
		})
		conn, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		all.Go(func() { s.serve(ctx, conn, i) })
	}
	if config, err = ca.issue("one too many"); err != nil {
		return err
	}
	_, err = fab.Dial(ctx, *listen, gpurdma.Config{TLS: config, Hello: []byte(hello)})
	fmt.Fprintln(out, err)
	close(goOn)
	all.Wait()
	fmt.Fprintln(out, s.results.Load(), "results")
	return nil
}

// network is used with -fabric memory. Each call of open adds a machine to it.
var network = fabrictest.NewNetwork(fabrictest.Options{})

func open() (*gpurdma.Fabric, error) {
	if *fabric == "memory" {
		return network.Open(*nic)
	}
	return gpurdma.Open(*nic)
}

type server struct {
	memory  *gpurdma.Buffer
	results atomic.Int32
	out     io.Writer
}

// admit admits clients with the server's protocol. TLS has checked their certificates before, and
// MaxConns bounds their number.
func admit(ctx context.Context, p gpurdma.PeerInfo) error {
	if string(p.Hello) != hello {
		return gpurdma.Reject("this server speaks " + hello)
	}
	return nil
}

// serve lends a part of the memory to a client, and waits for its result.
func (s *server) serve(ctx context.Context, conn *gpurdma.Conn, i int) {
	defer conn.Close()
	name := conn.Peer().TLS.PeerCertificates[0].Subject.CommonName
	err := conn.Export("results", s.memory.Range(int64(i*part), part), gpurdma.WriteOnly)
	if err == nil {
		_, err = conn.ReceiveNotification(ctx)
	}
	if err != nil {
		fmt.Fprintln(s.out, name, "has died:", err)
		return
	}
	s.results.Add(1)
	<-conn.Done()
}

// client writes its result, unless it dies before. In memory its machine is lost; with a NIC it
// ends the connection.
func client(ctx context.Context, config *tls.Config, goOn <-chan struct{}, dies bool) error {
	fab, err := open()
	if err != nil {
		return err
	}
	defer fab.Close()
	conn, err := fab.Dial(ctx, *listen, gpurdma.Config{TLS: config, Hello: []byte(hello), PeerTimeout: silence})
	if err != nil {
		return err
	}
	defer conn.Close()
	select {
	case <-goOn:
	case <-ctx.Done():
		return ctx.Err()
	}
	if dies && *fabric == "memory" {
		network.Lose(fab)
	}
	if dies {
		return nil
	}
	result, err := fab.Alloc(ctx, "host", part)
	if err != nil {
		return err
	}
	defer result.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	mine, err := conn.Import(ctx, "results")
	if err != nil {
		return err
	}
	return conn.Write(ctx, mine, result.All(), gpurdma.Notify(nil))
}
