// SPDX-License-Identifier: Apache-2.0

package fabrictest_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

// A NIC with a rate takes at least the time that its bytes take, in the direction that has the rate.
func TestSetRate(t *testing.T) {
	net := fabrictest.NewNetwork(fabrictest.Options{})
	server, client := open(net), open(net)
	defer server.Close()
	defer client.Close()
	ln, err := server.Listen(address, gpurdma.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 10
	theirs, err := server.Alloc(t.Context(), "host", size)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := ln.Accept(context.Background())
		if err == nil {
			_ = c.Export("m", theirs.All(), gpurdma.ReadWrite)
		}
	}()
	conn, err := client.Dial(t.Context(), address, gpurdma.Config{})
	if err != nil {
		t.Fatal(err)
	}
	remote, err := conn.Import(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := client.Alloc(t.Context(), "host", size)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of            *gpurdma.Fabric
		send, receive float64
		write, read   bool // is slow
	}{{client, 1 << 20, 0, true, false}, {client, 0, 1 << 20, false, true}, {server, 1 << 20, 0, false, true}, {server, 1 << 24, 1 << 20, true, false}} {
		nic := net.NIC(c.of, "")
		nic.SetRate(c.send, c.receive)
		begin := time.Now()
		if err := conn.Write(t.Context(), remote.All(), ours.All()); err != nil {
			t.Fatal(err)
		}
		write := time.Since(begin)
		if err := conn.Read(t.Context(), ours.All(), remote.All()); err != nil {
			t.Fatal(err)
		}
		read := time.Since(begin) - write
		nic.SetRate(0, 0)
		const least = time.Second / 16 // 64 KiB at 1 MiB a second
		if c.write && write < least || c.read && read < least {
			t.Errorf("%+v: write took %v, read %v", c, write, read)
		}
	}
}
