// SPDX-License-Identifier: Apache-2.0

package fabrictest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

const address = "127.0.0.1:7471" // of the network in memory: no port of this machine is used

// serve is the program under test: it lends memory to one client, and prints what the client
// has written there when the client says so.
func serve(ctx context.Context, fab *gpurdma.Fabric, ln *gpurdma.Listener) error {
	buf, err := fab.Alloc(ctx, "cuda:0", 16)
	if err != nil {
		return err
	}
	defer buf.Close()
	conn, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Export("greeting", buf.All(), gpurdma.ReadWrite); err != nil {
		return err
	}
	note, err := conn.ReceiveNotification(ctx)
	if err != nil {
		return err
	}
	got := make([]byte, 16)
	if _, err := buf.ReadAt(got, 0); err != nil {
		return err
	}
	fmt.Printf("the server has got %q, with note %q\n", got[:5], note)
	<-conn.Done()
	return nil
}

// greet is the client.
func greet(ctx context.Context, fab *gpurdma.Fabric, cfg gpurdma.Config, before func()) error {
	buf, err := fab.Alloc(ctx, "host", 16)
	if err != nil {
		return err
	}
	if _, err := buf.WriteAt([]byte("hello"), 0); err != nil {
		return err
	}
	conn, err := fab.Dial(ctx, address, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	theirs, err := conn.Import(ctx, "greeting")
	if err != nil {
		return err
	}
	before()
	return conn.Write(ctx, theirs, buf.All(), gpurdma.Notify([]byte("first")))
}

// The bytes of a write may arrive after its acknowledgement, but not after its notification. A
// network that holds them back as long as it may shows that the program waits for the
// notification.
func Example_lateBytes() {
	net := fabrictest.NewNetwork(fabrictest.Options{HoldWrites: true})
	server, client := open(net), open(net)
	defer server.Close()
	defer client.Close()
	run(server, client, gpurdma.Config{}, func() {})
	// Output:
	// the server has got "hello", with note "first"
	// the client: <nil>
}

// A client whose path to the server is cut learns of it when Config.PeerTimeout is over, more or
// less. So does the server.
func Example_cut() {
	net := fabrictest.NewNetwork(fabrictest.Options{})
	server, client := open(net), open(net)
	defer server.Close()
	defer client.Close()
	run(server, client, gpurdma.Config{PeerTimeout: 20 * time.Millisecond}, func() { net.Cut(server, client) })
	// Output:
	// the server: the peer has gone
	// the client: the peer has gone
}

func open(net *fabrictest.Network) *gpurdma.Fabric {
	fab, err := net.Open("mlx5_0")
	if err != nil {
		log.Fatal(err)
	}
	return fab
}

// run runs both sides of the program.
func run(server, client *gpurdma.Fabric, cfg gpurdma.Config, before func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ln, err := server.Listen(address, cfg)
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- serve(ctx, server, ln) }()
	err = greet(ctx, client, cfg, before)
	if why := <-served; errors.Is(why, gpurdma.ErrPeerGone) {
		fmt.Println("the server: the peer has gone")
	} else if why != nil {
		fmt.Println("the server:", why)
	}
	if errors.Is(err, gpurdma.ErrPeerGone) {
		fmt.Println("the client: the peer has gone")
	} else {
		fmt.Println("the client:", err)
	}
}
