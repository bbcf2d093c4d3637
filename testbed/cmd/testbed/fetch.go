// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/gpurdma/gpurdma/testbed/apt"
	"github.com/gpurdma/gpurdma/testbed/downloads"
	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/layout"
)

func runFetch(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("testbed fetch", flag.ContinueOnError)
	series := fs.String("kernel", defaultKernel(), "kernel `series`")
	missing := fs.Bool("if-missing", false, "keep a cached kernel even where apt offers a newer one")
	if err := fs.Parse(args); err != nil {
		return 0, err
	}
	t, err := findTree()
	if err != nil {
		return 0, err
	}
	var k kernel.Kernel
	if *missing {
		k, err = ensureKernel(ctx, t, *series)
	} else {
		k, err = fetchKernel(ctx, t, *series)
	}
	if err != nil {
		return 0, err
	}
	fmt.Println(k.Release)
	return 0, nil
}

// ensureKernel returns the cached kernel and fetches it only when there is
// none, so that a test run never changes kernels by itself.
func ensureKernel(ctx context.Context, t layout.Tree, series string) (kernel.Kernel, error) {
	k, err := kernel.Open(t, series)
	if err == nil || !isNotFetched(err) {
		return k, err
	}
	return fetchKernel(ctx, t, series)
}

// fetchKernel fetches a kernel, and has the manifest say so.
func fetchKernel(ctx context.Context, t layout.Tree, series string) (kernel.Kernel, error) {
	k, err := kernel.Fetch(ctx, t, series, &apt.Apt{}, logf)
	if err != nil {
		return k, err
	}
	return k, downloads.WriteManifest(t.Root, t.Host)
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testbed: "+format+"\n", args...)
}
