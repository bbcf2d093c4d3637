// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// perftestOf runs perftest's program for t with itself, and returns what its
// client has measured: messages a second, or microseconds.
func perftestOf(ctx context.Context, device string, t traffic, port int) (float64, error) {
	program := "ib_" + t.op + "_bw"
	args := []string{
		"-d", device, "-x", strconv.Itoa(t.gid), "-m", strconv.Itoa(t.mtu), "-F", "-p", strconv.Itoa(port),
		"-s", strconv.Itoa(t.size), "-n", strconv.Itoa(t.count), "-I", "0",
	}
	if t.op == "read" { // a READ has no inline data, and perftest refuses -I for it
		args = append(args[:len(args)-2], "-o", strconv.Itoa(t.reads))
	}
	if t.latency {
		program = "ib_" + t.op + "_lat"
	} else {
		args = append(args, "-N", "-t", strconv.Itoa(t.depth), "-Q", strconv.Itoa(t.batch))
		if t.batch > 1 {
			args = append(args, "-l", strconv.Itoa(t.batch))
		}
	}
	if t.op == "send" {
		args = append(args, "-r", strconv.Itoa(trafficRecvs))
	}
	out, err := bothSides(ctx, program, port, args)
	if err != nil {
		return 0, err
	}
	return readPerftest(out, t)
}

// readPerftest finds the result: a line of numbers that begins with size and
// count.
func readPerftest(out string, t traffic) (float64, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] != strconv.Itoa(t.size) || f[1] != strconv.Itoa(t.count) {
			continue
		}
		column, scale := 4, 1e6 // millions of messages a second
		switch {
		case t.latency: // the median
			scale = 1
		case t.size > 4<<10: // with so few digits, MiB a second say more
			column, scale = 3, (1<<20)/float64(t.size)
		}
		v, err := strconv.ParseFloat(f[column], 64)
		if err == nil && v <= 0 {
			err = errors.New("nothing was measured")
		}
		return v * scale, err
	}
	return 0, fmt.Errorf("no line with %d bytes and %d messages in %q", t.size, t.count, out)
}

// bothSides runs a program as a server and, once it listens, as its client,
// which is given the server's address. Both must end well. Each side has a processor of
// its own, where there are two: if both could move, the results would depend mostly on
// the processors that the kernel chooses for the software NIC's work. With one processor
// Go would have one P, which its monitor hands on whenever a call into C is interrupted
// for 20 us, so bothSides sets GOMAXPROCS to 2. The monitor would also wake up on the
// same processor some 1,000 times a second; startLate prevents that. A program that is
// tied to one processor must be started in the same way.
func bothSides(ctx context.Context, program string, port int, args []string) (string, error) {
	return bothSidesIn(ctx, program, port, args, nil)
}

// bothSidesIn is bothSides with variables of the environment for each side.
func bothSidesIn(ctx context.Context, program string, port int, args []string, env func(client bool) []string) (string, error) {
	if env == nil {
		env = func(bool) []string { return nil }
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var said, out bytes.Buffer
	server := exec.CommandContext(ctx, program, args...)
	server.Stdout, server.Stderr = &said, &said
	common := append(os.Environ(), "GOMAXPROCS=2")
	server.Env = append(common[:len(common):len(common)], env(false)...)
	if err := startOn(false, server); err != nil {
		return "", err
	}
	served := make(chan error, 1)
	go func() { served <- server.Wait() }()
	failed := func(err error) (string, error) {
		cancel()
		<-served
		return "", fmt.Errorf("%s %s: %w\nserver: %s\nclient: %s", program, strings.Join(args, " "), err, &said, &out)
	}
	for !listens(port) {
		select {
		case err := <-served:
			served <- nil
			return failed(fmt.Errorf("the server has ended: %w", err))
		case <-ctx.Done():
			return failed(errors.New("the server does not listen"))
		case <-time.After(2 * time.Millisecond):
		}
	}
	client := exec.CommandContext(ctx, program, append(args[:len(args):len(args)], "127.0.0.1")...)
	client.Stdout, client.Stderr = &out, &out
	client.Env = append(common[:len(common):len(common)], env(true)...)
	if err := startOn(true, client); err != nil {
		return failed(err)
	}
	if err := client.Wait(); err != nil {
		return failed(err)
	}
	if err := <-served; err != nil {
		served <- nil
		return failed(fmt.Errorf("the server: %w", err))
	}
	return out.String(), nil
}

// listens reports whether a process listens on a TCP port.
func listens(port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			// "sl local_address rem_address st", where 0A is LISTEN
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}
