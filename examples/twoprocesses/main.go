// SPDX-License-Identifier: Apache-2.0

// Command twoprocesses moves the buffer of another process to a peer. An engine in Python owns
// the buffer, and sends its dma-buf descriptor over a UNIX socket. This program registers it, and
// posts a write at once. The write starts when the engine says that the bytes are ready.
//
//	twoprocesses -nic rxe0              over a NIC
//	twoprocesses -fabric memory         without a NIC
//
// The engine needs python3 and /dev/udmabuf (modprobe udmabuf).
package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/gpualloc"
)

var (
	nic    = flag.String("nic", "mlx5_0", "the RDMA `NIC`")
	listen = flag.String("listen", "127.0.0.1:7474", "the peer's `address`")
	fabric = flag.String("fabric", "", `"memory": without a NIC`)
	python = flag.String("python", "python3", "the Python `interpreter`")
)

//go:embed engine.py
var engine string

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	fab, err := open()
	if err != nil {
		return err
	}
	defer fab.Close()

	// The peer, in this process, too.
	arrived, err := fab.Alloc(ctx, "host", 1<<20)
	if err != nil {
		return err
	}
	ln, err := fab.Listen(*listen, gpurdma.Config{})
	if err != nil {
		return err
	}
	go func() {
		if conn, err := ln.Accept(ctx); err == nil {
			_ = conn.Export("arrived", arrived.All(), gpurdma.WriteOnly)
		}
	}()

	link, wait, err := startEngine(ctx, out)
	if err != nil {
		return err
	}
	defer link.Close()
	memory, err := receive(link)
	if err != nil {
		return errors.Join(err, wait())
	}
	defer memory.Close()
	buffer, err := fab.Register(ctx, memory)
	if err != nil {
		return err
	}
	defer buffer.Close() // runs before memory.Close, which returns an error while the memory is registered
	buffer.SetReady(whenReady(link))
	fmt.Fprintln(out, "the engine's buffer is", buffer.Path())
	conn, err := fab.Dial(ctx, *listen, gpurdma.Config{})
	if err != nil {
		return err
	}
	to, err := conn.Import(ctx, "arrived")
	if err != nil {
		return err
	}
	if err := conn.Write(ctx, to, buffer.All()); err != nil { // waits for the engine
		return err
	}
	bytes := make([]byte, arrived.Size())
	if _, err := arrived.ReadAt(bytes, 0); err != nil {
		return err
	}
	sum := sha256.Sum256(bytes)
	if _, err := link.Write(sum[:]); err != nil {
		return err
	}
	return wait()
}

func open() (*gpurdma.Fabric, error) {
	if *fabric == "memory" {
		return fabrictest.New(), nil
	}
	return gpurdma.Open(*nic)
}

// startEngine starts the other process, and waits until it has connected.
func startEngine(ctx context.Context, out io.Writer) (link *net.UnixConn, wait func() error, err error) {
	dir, err := os.MkdirTemp("", "twoprocesses")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "socket")
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	ended := make(chan error, 1)
	cmd := exec.CommandContext(ctx, *python, "-c", engine, path)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	go func() {
		ended <- cmd.Wait()
		ln.Close() // ends Accept if the engine has ended before it connected
	}()
	link, err = ln.AcceptUnix()
	if err != nil {
		return nil, nil, fmt.Errorf("the engine has ended: %w", <-ended)
	}
	return link, func() error { return <-ended }, nil
}

// receive takes the buffer that the engine sends.
func receive(link *net.UnixConn) (*gpualloc.Buffer, error) {
	_, bufs, err := dmabuf.Receive(link, make([]byte, 100), 1)
	if err != nil {
		return nil, err
	}
	if len(bufs) == 0 {
		return nil, errors.New("the engine has sent no buffer")
	}
	size := bufs[0].Size()
	return gpualloc.NewBuffer(gpualloc.Description{Spec: "engine", Kind: gpualloc.KindSystem}, size,
		[]gpualloc.Exported{{Segment: gpualloc.Segment{Buf: bufs[0], Size: size}}}), nil
}

// whenReady returns a function that waits until the engine has said that the buffer is ready.
func whenReady(link *net.UnixConn) func(context.Context) error {
	ready := make(chan error, 1)
	go func() {
		_, err := link.Read(make([]byte, 100))
		ready <- err
	}()
	return func(ctx context.Context) error {
		select {
		case err := <-ready:
			ready <- err // for the next operation
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
