// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
)

// sideMain is one side of a run of ours, a process of its own as perftest's
// sides are: "bench side FLAGS" is the server, with a port as its argument, or
// with the server's address the client, which prints what it has measured.
func sideMain(args []string) error {
	t, device, port, addr, err := parseSide(args)
	if err != nil {
		return err
	}
	var s interface {
		serve(port string) error
		call(addr string) (float64, error)
		close() error
	}
	switch t.through {
	case throughFabric:
		s, err = newProgram(device, t)
	case throughEndpoint:
		s, err = newApplication(device, t)
	default:
		s, err = newParty(device, t)
	}
	if err != nil {
		return err
	}
	var result float64
	if addr == "" {
		err = s.serve(port)
	} else {
		result, err = s.call(net.JoinHostPort(addr, port))
	}
	if err = errors.Join(err, s.close()); err == nil && addr != "" {
		fmt.Println(strconv.FormatFloat(result, 'g', -1, 64))
	}
	return err
}

// parseSide reads what args has written, without its first word, and the server's
// address, "" for the server.
func parseSide(args []string) (t traffic, device, port, addr string, err error) {
	fs := flag.NewFlagSet("side", flag.ContinueOnError)
	fs.StringVar(&device, "nic", "", "")
	fs.StringVar(&t.through, "through", "", "")
	fs.StringVar(&t.op, "op", "", "")
	fs.BoolVar(&t.latency, "latency", false, "")
	for name, v := range map[string]*int{"size": &t.size, "count": &t.count, "depth": &t.depth, "batch": &t.batch, "gid": &t.gid, "mtu": &t.mtu, "reads": &t.reads} {
		fs.IntVar(v, name, 0, "")
	}
	fs.StringVar(&port, "port", "", "")
	err = fs.Parse(args)
	return t, device, port, fs.Arg(0), err
}

// sideOf runs both sides of ours and returns what the client has measured.
func sideOf(ctx context.Context, device string, t traffic, port int) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	out, err := bothSides(ctx, self, port, t.args(device, port))
	if err != nil {
		return 0, err
	}
	var v float64
	_, err = fmt.Sscan(out, &v)
	return v, err
}
