// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/exampletest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestLength(t *testing.T) { exampletest.Length(t, 120, 0) }

// Without a NIC it runs anywhere with Python and udmabuf.
func TestTwoProcesses(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	if f, err := os.OpenFile("/dev/udmabuf", os.O_RDWR, 0); err != nil {
		t.Skip(err)
	} else {
		f.Close()
	}
	exampletest.Runs(t, run, map[string]string{"fabric": "memory"}, "engine: all bytes have arrived")
}

//testbed:kernel 7.2 6.12
func TestVMTwoProcesses(t *testing.T) {
	testenv.VM(t)
	testenv.Need(t, "udmabuf", "6.12", testenv.Node("/dev/udmabuf"))
	for name, flags := range map[string]map[string]string{
		"memory": {"fabric": "memory"}, "rxe": {"fabric": "", "nic": "rxe0"},
	} {
		t.Run(name, func(t *testing.T) {
			flags["python"] = "/usr/bin/python3"
			exampletest.Runs(t, run, flags, "engine: all bytes have arrived")
		})
	}
}

// Without an interpreter, or an engine that connects, the error says so.
func TestNoEngine(t *testing.T) {
	for interpreter, want := range map[string]string{"/nonexistent/python3": "no such file", "/bin/false": "the engine has ended"} {
		*fabric, *python = "memory", interpreter
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
		if err := run(ctx, new(exampletest.Output)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", interpreter, err)
		}
		cancel()
	}
}
