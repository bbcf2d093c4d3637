// SPDX-License-Identifier: Apache-2.0

//go:build !manual

package main

import (
	"os"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"

	// The vendors' runtimes register their allocators (cuda:N, rocm:N, ze:N). Their libraries are
	// loaded when used.
	_ "github.com/gpurdma/gpurdma/gpualloc/cuda"
	_ "github.com/gpurdma/gpurdma/gpualloc/levelzero"
	_ "github.com/gpurdma/gpurdma/gpualloc/rocm"
)

// version and revision are set by the build.
var version, revision = "unknown", "unknown"

func main() {
	ctx, cancel := cli.Context()
	a := &app.App{Stdout: os.Stdout, Stderr: os.Stderr, Progress: cli.NewProgress(os.Stderr), Version: cli.Version(version), Revision: cli.Revision(revision)}
	status := a.Run(ctx, root(a), os.Args[1:])
	cancel()
	os.Exit(status)
}
