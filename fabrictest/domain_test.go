// SPDX-License-Identifier: Apache-2.0

package fabrictest_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/fi"

	"github.com/gpurdma/gpurdma/fabrictest"
)

// A program of package fi runs over the network, and meets its faults.
func TestDomain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	net := fabrictest.NewNetwork(fabrictest.Options{})
	here, a := net.OpenDomain("mlx5_0")
	there, b := net.OpenDomain("mlx5_0")
	opt := fi.EndpointOptions{PeerTimeout: time.Second}
	client, server := value(here.Endpoint(opt))(t), value(there.Endpoint(opt))(t)
	addr := value(server.Listen("127.0.0.1:0"))(t)
	peer := value(client.Insert(addr.String()))(t)
	local, remote := value(here.AllocHost(64))(t), value(there.AllocHost(64))(t)
	value(local.WriteAt([]byte("by fi"), 0))(t)

	key := value(server.Key(remote.All(), fi.AddrUnspec, fi.RemoteWrite))(t)
	wire := value(key.MarshalBinary())(t)
	var theirs fi.Key
	if err := theirs.UnmarshalBinary(wire); err != nil {
		t.Fatal(err)
	}
	if err := client.Write(local.All(), peer, theirs.All(), nil); err != nil {
		t.Fatal(err)
	}
	var entries [1]fi.CQEntry
	if n, err := client.CQ().Sread(ctx, entries[:]); n != 1 || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	got := make([]byte, 5)
	value(remote.ReadAt(got, 0))(t)
	if string(got) != "by fi" {
		t.Errorf("the peer has %q", got)
	}

	a.Cut(b)
	if err := client.Write(local.All(), peer, theirs.All(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CQ().Sread(ctx, entries[:]); fi.Code(err) != fi.EAVAIL {
		t.Errorf("over a path that is cut: %v", err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	for what, end := range map[string]func() error{"client": client.Close, "local": local.Close, "remote": remote.Close} {
		if err := end(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, d := range []*fi.Domain{here, there} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := net.InUse(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// value returns a value, or ends the test.
func value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
