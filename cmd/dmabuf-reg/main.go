// SPDX-License-Identifier: Apache-2.0

// Command dmabuf-reg allocates GPU and system memory, exports it as a dma-buf,
// registers it with an RDMA NIC, moves bytes in and out of it and checks every
// one.
package main

import (
	"os"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// version is set by the build.
var version = "unknown"

func main() {
	version = cli.Version(version)
	ctx, cancel := cli.Context()
	a := &app{stdout: os.Stdout, stderr: os.Stderr, progress: cli.NewProgress(os.Stderr)}
	status := a.run(ctx, os.Args[1:])
	cancel()
	os.Exit(status)
}
