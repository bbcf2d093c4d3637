// SPDX-License-Identifier: Apache-2.0

package handshake_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gpurdma/gpurdma/internal/handshake"
)

// A server sends the first byte of each caller back, and holds at most 256 callers that have not
// sent it yet.
func Example() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	s := handshake.Server{
		Pending: handshake.New(256),
		Timeout: 10 * time.Second,
		Handshake: func(_ context.Context, c *handshake.Caller) error {
			c.Advance(handshake.Hello) // without TLS the first byte is the hello's
			var hello [1]byte
			if _, err := io.ReadFull(c, hello[:]); err != nil {
				return err
			}
			if err := c.Connected(); err != nil {
				return err
			}
			defer c.Close()
			_, _ = c.Write(hello[:])
			return nil
		},
		OnReject: func(from net.Addr, why error) { fmt.Println(from, why) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Serve(ctx, l)
	}()

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = c.Write([]byte("h"))
	said, _ := io.ReadAll(c)
	fmt.Printf("%s\n", said)
	_ = c.Close()

	cancel()
	_ = l.Close()
	<-over
	// Output: h
}
