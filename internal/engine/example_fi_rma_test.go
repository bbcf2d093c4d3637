// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
)

// Writes with data for the peer, an injected one, one of several ranges that completes when
// the bytes are delivered, and a counter at the peer.
func ExampleEndpoint_WriteMsg() {
	if err := writeAndTell(context.Background()); err != nil {
		log.Print(err)
	}
}

func writeAndTell(ctx context.Context) (err error) {
	nic, err := engine.OpenNIC(exampleNIC, engine.NICOptions{})
	if err != nil {
		return err
	}
	defer closed(nic, &err)
	server, client, toServer, toClient, done, err := connected(ctx, nic)
	if err != nil {
		return err
	}
	defer done(&err)
	memory, err := gpuBuffer(ctx, nic, 1000)
	if err != nil {
		return err
	}
	defer released(memory, &err)
	mine, err := server.Share(toClient, memory.All(), ibvfd.AccessRemoteRead|ibvfd.AccessRemoteWrite|ibvfd.AccessRemoteAtomic)
	if err != nil {
		return err
	}
	// Each of the two writes with data takes a receive.
	for range 2 {
		if err := server.Recv(engine.Span{}, toClient, nil); err != nil {
			return err
		}
	}
	if err := server.Offer(ctx, toClient, mine); err != nil {
		return err
	}
	remote, err := client.Offered(ctx, toServer)
	if err != nil {
		return err
	}
	host, err := nic.AllocHost(64)
	if err != nil {
		return err
	}
	defer released(host, &err)
	if _, err := host.WriteAt([]byte("eight...and eight more, and 8 b."), 0); err != nil {
		return err
	}

	if err := client.InjectWriteData([]byte("injected"), 1, toServer, remote.Part(100, 8)); err != nil {
		return err
	}
	err = client.WriteMsg(engine.Msg{
		Local:   []engine.Span{{Buf: host, Length: 24}},
		Peer:    toServer,
		Remote:  []engine.RemoteSpan{remote.Part(200, 8), remote.Part(300, 16)},
		Data:    2,
		Context: "message",
	}, engine.FlagRemoteCQData|engine.FlagDeliveryComplete)
	if err != nil {
		return err
	}
	if err := client.FetchAdd(engine.Span{Buf: host, Offset: 56, Length: 8}, toServer, remote.Part(0, 8), 3, "count"); err != nil {
		return err
	}
	if err := await(ctx, client, 2); err != nil { // an injected write makes none
		return err
	}
	told := make([]engine.Completion, 1)
	for i := range uint32(2) {
		if _, err := server.Wait(ctx, told); err != nil {
			return err
		}
		if c := told[0]; c.Op != engine.OpRemoteWrite || c.Data != i+1 {
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
