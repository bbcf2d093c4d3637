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

// serve is the program under test: it lends memory to one client, waits until the client has
// written there, prints what it finds, and answers.
func serve(ctx context.Context, fab *gpurdma.Fabric, ln *gpurdma.Listener, written waiter) error {
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
	if err := written(ctx, conn); err != nil {
		return err
	}
	got := make([]byte, 5)
	if _, err := buf.ReadAt(got, 0); err != nil {
		return err
	}
	fmt.Printf("the server has got %q\n", got)
	if err := conn.Send(ctx, []byte("thanks")); err != nil {
		return err
	}
	<-conn.Done()
	return nil
}

// greet is the client: it writes to the server's memory, and waits for the answer.
func greet(ctx context.Context, fab *gpurdma.Fabric, cfg gpurdma.Config, write writer) error {
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
	if err := write(ctx, conn, theirs, buf.All()); err != nil {
		return err
	}
	_, err = conn.Receive(ctx)
	return err
}

type (
	waiter func(context.Context, *gpurdma.Conn) error
	writer func(context.Context, *gpurdma.Conn, gpurdma.Remote, gpurdma.Span) error
)

// notified waits for a notification of the client, behind which are the bytes of its write.
func notified(ctx context.Context, conn *gpurdma.Conn) error {
	_, err := conn.ReceiveNotification(ctx)
	return err
}

// notify writes, with a notification.
func notify(ctx context.Context, conn *gpurdma.Conn, to gpurdma.Remote, from gpurdma.Span) error {
	return conn.Write(ctx, to, from, gpurdma.Notify([]byte("first")))
}

// The bytes of a write may arrive after its acknowledgement. This program has a mistake: there is no
// notification. The server learns another way, here by a channel, that the write is acknowledged,
// and reads. Only a network that holds the bytes back shows it.
func Example_acknowledged() {
	for _, late := range []bool{false, true} {
		net := fabrictest.NewNetwork(fabrictest.Options{HoldWrites: late})
		server, client := open(net), open(net)
		acknowledged := make(chan error, 1)
		run(server, client, gpurdma.Config{}, func(_ context.Context, conn *gpurdma.Conn) error {
			select {
			case err := <-acknowledged:
				return err
			case <-conn.Done():
				return conn.Err()
			}
		}, func(ctx context.Context, conn *gpurdma.Conn, to gpurdma.Remote, from gpurdma.Span) error {
			err := conn.Write(ctx, to, from)
			acknowledged <- err
			return err
		})
		server.Close()
		client.Close()
	}
	// Output:
	// the server has got "hello"
	// the client: <nil>
	// the server has got "\x00\x00\x00\x00\x00"
	// the client: <nil>
}

// With a notification the program is right, on a network that holds bytes back, too.
func Example_lateBytes() {
	net := fabrictest.NewNetwork(fabrictest.Options{HoldWrites: true})
	server, client := open(net), open(net)
	defer server.Close()
	defer client.Close()
	run(server, client, gpurdma.Config{}, notified, notify)
	// Output:
	// the server has got "hello"
	// the client: <nil>
}

// A client whose path to the server is cut learns of it when Config.PeerTimeout is over, more or
// less. So does the server.
func Example_cut() {
	net := fabrictest.NewNetwork(fabrictest.Options{})
	server, client := open(net), open(net)
	defer server.Close()
	defer client.Close()
	run(server, client, gpurdma.Config{PeerTimeout: 500 * time.Millisecond}, notified,
		func(ctx context.Context, conn *gpurdma.Conn, to gpurdma.Remote, from gpurdma.Span) error {
			net.Cut(server, client)
			return notify(ctx, conn, to, from)
		})
	// Output:
	// the server: the peer has gone
	// the client: the peer has gone
}

// open adds a machine to the network.
func open(net *fabrictest.Network) *gpurdma.Fabric {
	fab, err := net.Open("mlx5_0")
	if err != nil {
		log.Fatal(err)
	}
	return fab
}

// run runs both sides of the program, and prints how each of them ends.
func run(server, client *gpurdma.Fabric, cfg gpurdma.Config, written waiter, write writer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ln, err := server.Listen(address, cfg)
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- serve(ctx, server, ln, written) }()
	err = greet(ctx, client, cfg, write)
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
