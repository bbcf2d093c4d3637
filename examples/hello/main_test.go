// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/gpurdma/gpurdma/internal/exampletest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// asCommand makes the test binary the command itself.
const asCommand = "HELLO_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	testenv.Main(m)
}

func TestLength(t *testing.T) { exampletest.Length(t, 60, 15) }

func TestHello(t *testing.T) {
	exampletest.Runs(t, run, map[string]string{"fabric": "memory"}, "lent memory, host: registered with mem0, by memory\n", "read \"hello\"; the number was 0\nlocal memory, host: registered with mem0, by memory\n")
}

//testbed:kernel 7.2 6.12
func TestVMHello(t *testing.T) {
	testenv.VM(t)
	exampletest.Runs(t, run, map[string]string{"fabric": "", "nic": "rxe0", "listen": "127.0.0.1:7471", "connect": "127.0.0.1:7471", "gpu": "drm:vgem"}, "lent memory, drm:vgem: registered with rxe0, by REG_DMABUF_MR ioctl\n", "read \"hello\"; the number was 0\nlocal memory, host: registered with rxe0, by host\n")
}
