// SPDX-License-Identifier: Apache-2.0

//go:build manual

package main

import (
	"os"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/manual"
)

// version is set by the build.
var version = "unknown"

// main writes the manual pages and the completions of dmabuf-reg into a directory.
func main() {
	c := root(&app.App{Stdout: os.Stdout, Stderr: os.Stderr, Version: cli.Version(version)})
	cli.Strict(c)
	os.Exit(manual.Main(c, os.Args[1:], os.Stderr))
}
