// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
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

// The machine of the second decoder dies when it has one request. The others get all of theirs.
func TestKVMove(t *testing.T) {
	exampletest.Runs(t, func(ctx context.Context, out io.Writer) error {
		log := new(exampletest.Output)
		err := run(ctx, io.MultiWriter(out, log))
		second(t, log.String(), "127.0.0.2:1")
		return err
	}, map[string]string{"fabric": "memory"},
		"127.0.0.1:1 got 8 requests: <nil>", "127.0.0.3:1 got 8 requests: <nil>", "127.0.0.2:1 has request 0")
}

// second checks what the prefill side says of the decoder that has died: not all of its requests
// were moved, and there is an error.
func second(t *testing.T, log, addr string) {
	t.Helper()
	for line := range strings.Lines(log) {
		if got, ok := strings.CutPrefix(line, addr+" got "); ok {
			t.Log(line)
			if strings.HasSuffix(got, "<nil>\n") || strings.HasPrefix(got, "8 ") {
				t.Errorf("the decoder that has died: %s", got)
			}
			return
		}
	}
	t.Errorf("nothing is said of %s:\n%s", addr, log)
}

// The other processes are the test binary, running TestDecoder with these set.
const (
	decoderAddr = "GPURDMA_TEST_DECODER"
	decoderDies = "GPURDMA_TEST_DECODER_DIES"
)

// TestDecoder is a decoder in a process of its own, and no test.
func TestDecoder(t *testing.T) {
	addr := os.Getenv(decoderAddr)
	if addr == "" {
		t.Skip("it is the other process of TestVMKVMove")
	}
	exampletest.Runs(t, run, map[string]string{
		"nic": "rxe0", "gpu": "drm:vgem", "decode": addr, "die-after": os.Getenv(decoderDies),
	})
}

// Three decoders in processes of their own. The process of the second one ends without a word
// when it has one request. The others get all of theirs.
//
//testbed:kernel 7.2 6.12
func TestVMKVMove(t *testing.T) {
	testenv.VM(t)
	decoders := []string{"127.0.0.1:7472", "127.0.0.1:7482", "127.0.0.1:7492"}
	var others []*exec.Cmd
	for i, addr := range decoders {
		dies := "0"
		if i == 1 {
			dies = "1"
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestDecoder$", "-test.v")
		cmd.Env = append(os.Environ(), decoderAddr+"="+addr, decoderDies+"="+dies)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		others = append(others, cmd)
	}
	log := new(exampletest.Output)
	exampletest.Runs(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, io.MultiWriter(out, log))
	}, map[string]string{
		"nic": "rxe0", "gpu": "drm:vgem", "prefill": strings.Join(decoders, ","), "deadline": testenv.Limit(20 * time.Second).String(),
	}, decoders[0]+" got 8 requests: <nil>", decoders[2]+" got 8 requests: <nil>")
	second(t, log.String(), decoders[1])
	for i, cmd := range others {
		if err := cmd.Wait(); (err != nil) != (i == 1) {
			t.Errorf("decoder %d: %v", i, err)
		}
	}
}
