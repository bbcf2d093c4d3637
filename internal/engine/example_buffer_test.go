// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// A result in one piece is sent in parts: a slice for each peer. The memory stays until the
// last slice is released.
func ExampleBuffer_Slice() {
	if err := sendParts(context.Background()); err != nil {
		log.Print(err)
	}
}

func sendParts(ctx context.Context) (err error) {
	nic, err := memory.OpenNIC(exampleNIC, memory.NICOptions{})
	if err != nil {
		return err
	}
	defer closed(nic, &err)
	sender, receiver, toReceiver, toSender, done, err := connectedTo(ctx, nic)
	if err != nil {
		return err
	}
	defer done(&err)

	result, err := gpuBuffer(ctx, nic, 3000)
	if err != nil {
		return err
	}
	want := bytes.Repeat([]byte{1, 2, 3}, 1000)
	if _, err := result.WriteAt(want, 0); err != nil {
		return err
	}
	inbox, err := gpuBuffer(ctx, nic, 3000)
	if err != nil {
		return err
	}
	defer released(inbox, &err)
	for i := range int64(3) {
		part, err := result.ReadOnlySlice(i*1000, 1000)
		if err != nil {
			return err
		}
		if err := receiver.Recv(memory.Span{Buf: inbox, Offset: i * 1000, Length: 1000}, toSender, i); err != nil {
			return err
		}
		if err := errors.Join(sender.Send(part.All(), toReceiver, i), part.Release()); err != nil {
			return err // the operation keeps the slice's memory
		}
	}
	if err := result.Release(); err != nil {
		return err
	}
	if err := errors.Join(await(ctx, sender, 3), await(ctx, receiver, 3)); err != nil {
		return err
	}
	got := make([]byte, 3000)
	if _, err := inbox.ReadAt(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("other bytes came")
	}
	return nil
}

// connectedTo is connected, from the sender's side.
func connectedTo(ctx context.Context, nic *memory.NIC) (sender, receiver *engine.Endpoint, toReceiver, toSender operation.Peer, done func(*error), err error) {
	receiver, sender, toReceiver, toSender, done, err = connected(ctx, nic)
	return
}

// Path reports whether the NIC reaches a GPU's memory directly: registered does not mean
// proven. A buffer that cannot be registered is staged, and Path has the reason.
func ExampleBuffer_Path() {
	if err := explainPath(context.Background()); err != nil {
		log.Print(err)
	}
}

func explainPath(ctx context.Context) (err error) {
	nic, err := memory.OpenNIC(exampleNIC, memory.NICOptions{MaxPinned: 16 << 20})
	if err != nil {
		return err
	}
	defer closed(nic, &err)
	b, err := gpuBuffer(ctx, nic, 1<<20)
	if err != nil {
		return err
	}
	defer closed(b, &err)
	near, err := b.Nearest()
	if err != nil {
		return err
	}
	fmt.Println("nearest NIC:", near.Name, near.Why)
	path := b.Path()
	fmt.Println("buffer", b.ID(), "is", path.Direct, path.Route)
	var refused *ibvfd.RegError
	if errors.As(path.Reason, &refused) {
		fmt.Println("staged, because", refused)
	}
	fmt.Println("GPUDirect:", b.GPUDirect(), "bytes copied:", nic.Stats().Staged)
	return nil
}
