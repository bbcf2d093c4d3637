// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/layout"
)

// The rows of a matrix, each by a view of its own; the peer's matrix gets them as its columns.
func ExampleView() {
	if err := transpose(context.Background()); err != nil {
		log.Print(err)
	}
}

func transpose(ctx context.Context) (err error) {
	nic, err := memory.OpenNIC(exampleNIC, memory.NICOptions{})
	if err != nil {
		return err
	}
	defer closed(nic, &err)
	server, client, toServer, toClient, done, err := connected(ctx, nic)
	if err != nil {
		return err
	}
	defer done(&err)

	const n, cell = 64, 8 // a square matrix
	const row = n * cell
	from, err := gpuBuffer(ctx, nic, n*row)
	if err != nil {
		return err
	}
	defer released(from, &err)
	to, err := gpuBuffer(ctx, nic, n*row)
	if err != nil {
		return err
	}
	defer released(to, &err)
	matrix := make([]byte, n*row)
	for i := range matrix {
		matrix[i] = byte(i / cell * 31)
	}
	if _, err := from.WriteAt(matrix, 0); err != nil {
		return err
	}
	mine, err := server.Share(toClient, to.All(), ibvfd.AccessRemoteWrite)
	if err != nil {
		return err
	}
	if err := server.Offer(ctx, toClient, mine); err != nil {
		return err
	}
	remote, err := client.Offered(ctx, toServer)
	if err != nil {
		return err
	}
	for i := range int64(n) {
		// Our row i, contiguous, is their column i, a cell of each row.
		line, err := layout.SG(layout.Extent{Off: i * row, Len: row})
		if err != nil {
			return err
		}
		ours, err := memory.NewView(line, from)
		if err != nil {
			return err
		}
		column, err := layout.Interleaved(layout.Extent{Off: i * cell, Len: cell}, layout.Dim{Count: n, Stride: row})
		if err != nil {
			return err
		}
		view, err := remote.View(column)
		if err != nil {
			return err
		}
		if err := client.Write(ours.All(), toServer, view.All(), i); err != nil {
			return err
		}
	}
	if err := await(ctx, client, n); err != nil {
		return err
	}
	got := make([]byte, n*row)
	if _, err := to.ReadAt(got, 0); err != nil {
		return err
	}
	for i := range n {
		for j := range n {
			if !bytes.Equal(got[j*row+i*cell:][:cell], matrix[i*row+j*cell:][:cell]) {
				return errors.New("the matrix is not transposed")
			}
		}
	}
	return nil
}

// Paging a KV cache: the blocks of a sequence, at the places of the block table, go to as many
// free blocks of another host's cache, in one operation.
func ExampleRemoteBuffer_View() {
	if err := pageOut(context.Background()); err != nil {
		log.Print(err)
	}
}

func pageOut(ctx context.Context) (err error) {
	nic, err := memory.OpenNIC(exampleNIC, memory.NICOptions{})
	if err != nil {
		return err
	}
	defer closed(nic, &err)
	server, client, toServer, toClient, done, err := connected(ctx, nic)
	if err != nil {
		return err
	}
	defer done(&err)

	const block, blocks, all = 16 << 10, 2048, 2560 // bytes; of the sequence; of a cache
	ours, err := gpuBuffer(ctx, nic, all*block)
	if err != nil {
		return err
	}
	defer released(ours, &err)
	theirs, err := gpuBuffer(ctx, nic, all*block)
	if err != nil {
		return err
	}
	defer released(theirs, &err)
	var from, to []layout.Extent
	for i := range int64(blocks) {
		from = append(from, layout.Extent{Off: i * 37 % all * block, Len: block})
		to = append(to, layout.Extent{Off: (all - 1 - i*3%all) * block, Len: block})
		if _, err := ours.WriteAt(kvBlock(int(i), block), from[i].Off); err != nil {
			return err
		}
	}
	sequence, err := layout.SG(from...)
	if err != nil {
		return err
	}
	cache, err := memory.NewView(sequence, ours)
	if err != nil {
		return err
	}
	mine, err := server.Share(toClient, theirs.All(), ibvfd.AccessRemoteWrite)
	if err != nil {
		return err
	}
	if err := server.Offer(ctx, toClient, mine); err != nil {
		return err
	}
	remote, err := client.Offered(ctx, toServer)
	if err != nil {
		return err
	}
	free, err := layout.SG(to...)
	if err != nil {
		return err
	}
	view, err := remote.View(free)
	if err != nil {
		return err
	}
	if err := client.Write(cache.All(), toServer, view.All(), "sequence"); err != nil {
		return err
	}
	if err := await(ctx, client, 1); err != nil {
		return err
	}
	got := make([]byte, block)
	for i := range to {
		if _, err := theirs.ReadAt(got, to[i].Off); err != nil {
			return err
		}
		if !bytes.Equal(got, kvBlock(i, block)) {
			return fmt.Errorf("block %d is wrong", i)
		}
	}
	return nil
}

// kvBlock returns the bytes of block i, which differ from all other blocks.
func kvBlock(i, size int) []byte {
	return bytes.Repeat([]byte{byte(i), byte(i >> 8), byte(i * 31), 0xcb}, size/4)
}
