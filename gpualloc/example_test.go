// SPDX-License-Identifier: Apache-2.0

package gpualloc_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/gpualloc"
)

// It lists what this machine can allocate, and why it cannot allocate the rest.
func ExampleDiscover() {
	for _, d := range gpualloc.Discover(gpualloc.Env{}) {
		if d.Available {
			fmt.Println(d.Spec, d.Driver, d.Kind)
		} else {
			fmt.Println(d.Spec, "not available:", d.Why, d.Remedy)
		}
	}
}

// A buffer of the best allocator, written and read by the CPU.
func ExampleOpen() {
	alloc, err := gpualloc.Open("auto", gpualloc.Env{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer alloc.Close()
	buf, err := alloc.Alloc(context.Background(), 1<<20, gpualloc.Options{Name: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer buf.Close()
	if _, err := buf.WriteAt([]byte("hello"), 12345); err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range buf.Segments() {
		fmt.Println(s.Buf.Inode(), s.Offset, s.Size)
	}
}

// A spec that names nothing lists what there is.
func ExampleOpen_unknown() {
	_, err := gpualloc.Open("abacus:0", gpualloc.Env{})
	if err == nil {
		log.Fatal("opened an abacus")
	}
	fmt.Println(errors.Is(err, gpualloc.ErrUnknownSpec))
	// Output: true
}
