// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// A side parses the arguments that it was started with, as a server and as a client.
func TestSideArguments(t *testing.T) {
	for _, want := range []traffic{
		{throughIbvfd, "write", false, 64, 1600, 128, 16, 1, 4096, 16},
		{throughEndpoint, "read", true, 4096, 8, 1, 1, 3, 1024, 5},
	} {
		args := want.args("rxe0", 18601)
		if args[0] != "side" {
			t.Errorf("%q is not how a side is called", args)
		}
		got, device, port, addr, err := parseSide(args[1:])
		if err != nil || got != want || device != "rxe0" || port != "18601" || addr != "" {
			t.Errorf("%+v, %q, %q, %q, %v; want %+v", got, device, port, addr, err, want)
		}
		if got, _, _, addr, err = parseSide(append(args[1:], "127.0.0.1")); err != nil || got != want || addr != "127.0.0.1" {
			t.Errorf("client: %+v, %q, %v", got, addr, err)
		}
	}
}

// A batch is posted together, and only its last operation makes a completion.
func TestFlagsOfABatch(t *testing.T) {
	flags := func(batch int) (list []operation.Flags) {
		for i := range batch {
			list = append(list, traffic{batch: batch}.flagsOf(i))
		}
		return list
	}
	for _, want := range [][]operation.Flags{
		{operation.FlagCompletion},
		{operation.FlagMore, operation.FlagMore, operation.FlagCompletion},
	} {
		if got := flags(len(want)); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// An endpoint goes over the GID that perftest is given by its index.
func TestOnlyGID(t *testing.T) {
	v4 := ibdev.GID{Index: 2, GID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}, Type: ibdev.GIDRoCEv2}
	v1, near, far := v4, v4, v4
	v1.Index, v1.Type = 1, ibdev.GIDRoCEv1
	near.Index, near.GID[15] = 3, 2
	far.Index, far.GID = 0, [16]byte{0: 0xfe, 1: 0x80, 15: 1}
	table := []ibdev.GID{far, v1, v4, near}
	for _, want := range table {
		got, _, err := onlyGID(want).Choose(table, ibdev.LinkEthernet)
		if err != nil || got.Index != want.Index {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
}
