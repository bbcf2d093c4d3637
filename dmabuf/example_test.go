// SPDX-License-Identifier: Apache-2.0

package dmabuf_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// A descriptor that is no dma-buf is refused, with what it is instead.
func ExampleImport() {
	null, err := os.Open("/dev/null")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer null.Close()
	_, err = dmabuf.Import(int(null.Fd()))
	fmt.Println(errors.Is(err, dmabuf.ErrNotDMABuf))
	// Output: true
}

// Two pages of ordinary memory as a dma-buf, written and read by the CPU.
func ExampleCreateUDMABuf() {
	mem, err := dmabuf.NewMemfd("example", 2*int64(os.Getpagesize()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mem.Close()
	var buf *dmabuf.Buf
	err = mem.Do(func(fd int) (err error) {
		buf, err = dmabuf.CreateUDMABuf([]dmabuf.Range{{FD: fd, Size: mem.Size()}})
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer buf.Close()
	view, err := buf.Map(0, buf.Size(), dmabuf.ReadWrite)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer view.Close()
	if _, err := view.WriteAt([]byte("hello"), 3); err != nil {
		fmt.Println(err)
	}
}

// The processes that hold each dma-buf, and those whose files could not be read.
func ExampleInventory() {
	usage, unreadable, err := dmabuf.Inventory("", 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, u := range usage {
		for _, h := range u.Holders {
			fmt.Println(u.Inode, u.Exporter, u.Size, h.PID, h.Comm, h.FDs)
		}
	}
	if len(unreadable) > 0 {
		fmt.Println(len(unreadable), "files could not be read: the list may be incomplete")
	}
}
