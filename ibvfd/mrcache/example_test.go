// SPDX-License-Identifier: Apache-2.0

package mrcache_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/mrcache"
)

// A program that sends parts of buffers, again and again.
func Example() {
	cache := mrcache.New(mrcache.Config{MaxEntries: 4096, MaxBytes: 64 << 30})
	defer func() {
		if err := cache.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	// for each transfer: send(ctx, cache, pd, buf, offset, length)
	fmt.Println(cache.Stats().Entries)
	// Output: 0
}

// send is a transfer: the Ref is held until it has completed.
func send(ctx context.Context, cache *mrcache.Cache, pd *ibvfd.PD, buf *dmabuf.Buf, off, length uint64, post func(context.Context, ibvfd.SGE) error) error {
	ref, err := cache.Get(pd, buf, mrcache.Range{Offset: off, Length: length})
	if err != nil {
		return err // *ibvfd.RegError, dmabuf.ErrLimit, …
	}
	defer ref.Release()
	err = post(ctx, ibvfd.SGE{Addr: ref.Addr(), Length: uint32(length), LKey: ref.LKey()})
	ref.Failed(err) // if the buffer was revoked, the next Get registers it anew
	return err
}

// free closes a buffer for good: what the cache has of it would keep its memory.
func free(cache *mrcache.Cache, buf *dmabuf.Buf) error {
	if n := cache.Invalidate(buf.Inode()); n > 0 {
		return fmt.Errorf("%d transfers under way: %w", n, dmabuf.ErrInUse)
	}
	return buf.Close()
}

func ExampleCache_Get() {
	cache := mrcache.New(mrcache.Config{})
	var pd *ibvfd.PD    // of an open context
	var buf *dmabuf.Buf // of a GPU's allocator
	if pd == nil || buf == nil {
		fmt.Println("needs a NIC")
		return
	}
	err := send(context.Background(), cache, pd, buf, 0, 1<<16, func(context.Context, ibvfd.SGE) error { return nil })
	fmt.Println(errors.Join(err, free(cache, buf), cache.Close()))
	// Output: needs a NIC
}
