// SPDX-License-Identifier: Apache-2.0

package fi_test

import (
	"bytes"
	"context"
	"errors"
	"log"

	"github.com/gpurdma/gpurdma/fi"
)

// Writes with data for the peer, an injected one, one of several ranges that completes when
// the bytes are delivered, and a counter at the peer.
func ExampleEndpoint_WriteMsg() {
	if err := writeAndTell(context.Background()); err != nil {
		log.Print(err)
	}
}

func writeAndTell(ctx context.Context) (err error) {
	d, err := fi.Open(exampleNIC, fi.DomainOptions{})
	if err != nil {
		return err
	}
	defer closed(d, &err)
	server, client, done, err := connected(ctx, d)
	if err != nil {
		return err
	}
	defer done(&err)
	memory, err := gpuMemory(ctx, d, 1000)
	if err != nil {
		return err
	}
	defer released(memory, &err)
	key, err := server.Key(memory.All(), fi.AddrUnspec, fi.RemoteRead|fi.RemoteWrite)
	if err != nil {
		return err
	}
	// Each of the two writes with data takes a receive.
	for range 2 {
		if err := server.Recv(fi.IOV{}, fi.AddrUnspec, nil); err != nil {
			return err
		}
	}
	if err := server.Offer(ctx, fi.AddrUnspec, key); err != nil {
		return err
	}
	remote, err := client.Offered(ctx, fi.AddrUnspec)
	if err != nil {
		return err
	}
	host, err := d.AllocHost(64)
	if err != nil {
		return err
	}
	defer released(host, &err)
	if _, err := host.WriteAt([]byte("eight...and eight more, and 8 b."), 0); err != nil {
		return err
	}

	if err := client.InjectWriteData([]byte("injected"), 1, fi.AddrUnspec, remote.Part(100, 8)); err != nil {
		return err
	}
	err = client.WriteMsg(fi.MsgRMA{
		IOV:     []fi.IOV{host.Part(0, 24)},
		RMAIOV:  []fi.RMAIOV{remote.Part(200, 8), remote.Part(300, 16)},
		Data:    2,
		Context: "message",
	}, fi.RemoteCQData|fi.DeliveryComplete)
	if err != nil {
		return err
	}
	if err := client.FetchAtomic(3, host.Part(56, 8), fi.AddrUnspec, remote.Part(0, 8), fi.Sum, "count"); err != nil {
		return err
	}
	if err := await(ctx, client, 2); err != nil { // an injected write makes none
		return err
	}
	told := make([]fi.CQEntry, 1)
	for i := range uint64(2) {
		if _, err := server.CQ().Sread(ctx, told); err != nil {
			return err
		}
		if c := told[0]; c.Flags != fi.RMA|fi.RemoteWrite|fi.RemoteCQData || c.Data != i+1 {
			return errors.New("other data came")
		}
	}
	got := make([]byte, 1000)
	if _, err := memory.ReadAt(got, 0); err != nil {
		return err
	}
	if string(got[100:108])+string(got[200:208])+string(got[300:316]) != "injectedeight...and eight more, " || !bytes.Equal(got[:8], []byte{3, 0, 0, 0, 0, 0, 0, 0}) {
		return errors.New("other bytes came")
	}
	return nil
}
