// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
)

// ours runs our two sides, each a process of its own, and returns bytes a second.
func (r railsRun) ours(ctx context.Context) (v float64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	args := []string{
		"rails-side", "-size", strconv.Itoa(r.size), "-count", strconv.Itoa(r.count), "-window", strconv.Itoa(r.window), "-port", strconv.Itoa(r.port),
		"-server", strings.Join(r.server, ","), "-client", strings.Join(r.client, ","),
	}
	out, err := bothSidesIn(ctx, self, r.port, args, nil)
	if err == nil {
		_, err = fmt.Sscan(out, &v)
	}
	return v, err
}

// railsSideMain is one side: the server, or with the server's address the client, which prints bytes a
// second.
func railsSideMain(args []string) (err error) {
	var r railsRun
	fs := flag.NewFlagSet("rails-side", flag.ContinueOnError)
	for name, v := range map[string]*int{"size": &r.size, "count": &r.count, "window": &r.window, "port": &r.port} {
		fs.IntVar(v, name, 0, "")
	}
	server, client := fs.String("server", "", ""), fs.String("client", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	r.server, r.client = strings.Split(*server, ","), strings.Split(*client, ",")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// The first GID of each NIC, as for UCX.
	cfg := gpurdma.Config{GID: gid.Wish{Subnet: netip.MustParsePrefix("fe80::/64")}, AllowPlaintext: true}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))
	nics, side := r.server, r.serve
	if fs.Arg(0) != "" {
		nics, side = r.client, r.call
	}
	f, err := gpurdma.Open(nics...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := f.Alloc(ctx, "host", int64(r.window*r.size))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return side(ctx, f, b, addr, cfg)
}

// serve takes the notifications of all writes, and says that it has them.
func (r railsRun) serve(ctx context.Context, f *gpurdma.Fabric, b *gpurdma.Buffer, addr string, cfg gpurdma.Config) error {
	ln, err := f.Listen(addr, cfg)
	if err != nil {
		return err
	}
	c, err := ln.Accept(ctx)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	if err = r.take(ctx, c, b); err != nil {
		return errors.Join(err, c.Close(), ln.Close())
	}
	<-c.Done() // the client closes it
	return ln.Close()
}

func (r railsRun) take(ctx context.Context, c *gpurdma.Conn, b *gpurdma.Buffer) error {
	if err := c.Export("memory", b.All(), gpurdma.ReadWrite); err != nil {
		return err
	}
	for _, n := range []int{railsWarm, r.count} {
		for range n {
			if _, err := c.ReceiveNotification(ctx); err != nil {
				return err
			}
		}
		if err := c.Send(ctx, []byte("all")); err != nil {
			return err
		}
	}
	return nil
}

// call writes, with a number of writes under way.
func (r railsRun) call(ctx context.Context, f *gpurdma.Fabric, b *gpurdma.Buffer, addr string, cfg gpurdma.Config) (err error) {
	c, err := f.Dial(ctx, addr, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	remote, err := c.Import(ctx, "memory")
	if err != nil {
		return err
	}
	for up := 0; up < len(r.client); time.Sleep(time.Millisecond) {
		up = 0
		for _, rail := range c.Rails() {
			if rail.Up {
				up++
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d rails are up: %w", up, len(r.client), context.Cause(ctx))
		}
	}
	if _, err := r.write(ctx, c, b, remote, railsWarm); err != nil {
		return err
	}
	took, err := r.write(ctx, c, b, remote, r.count)
	if err == nil {
		fmt.Println(float64(r.count) * float64(r.size) / took.Seconds())
	}
	return err
}

// write writes a number of times, and returns the time until the server has heard of all.
func (r railsRun) write(ctx context.Context, c *gpurdma.Conn, b *gpurdma.Buffer, remote gpurdma.Remote, n int) (time.Duration, error) {
	start, size := clock(), int64(r.size)
	under := make([]*gpurdma.Transfer, r.window)
	for i := range n + r.window {
		k := i % r.window
		if x := under[k]; x != nil {
			select {
			case <-x.Done():
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			if err := x.Err(); err != nil {
				return 0, err
			}
			under[k] = nil
		}
		if i >= n {
			continue
		}
		at := int64(k) * size
		x, err := c.Start(ctx, gpurdma.Op{Kind: gpurdma.OpWrite, Local: b.Range(at, size), Remote: remote.Range(at, size), Notify: true, Note: []byte("n")})
		if err != nil {
			return 0, err
		}
		under[k] = x
	}
	_, err := c.Receive(ctx)
	return clock() - start, err
}

// addCables makes pairs of rxe NICs, each over a cable of its own, and returns the NICs at each end.
func addCables(n int) (nics [2][]string, remove func() error, err error) {
	var undo []string
	do := func(command string) {
		if err != nil {
			return
		}
		f := strings.Fields(command)
		if out, e := exec.Command(f[0], f[1:]...).CombinedOutput(); e != nil {
			err = fmt.Errorf("%s: %w: %s", command, e, out)
		}
	}
	for i := range n {
		a, b := fmt.Sprintf("bench%da", i), fmt.Sprintf("bench%db", i)
		do("ip link add " + a + " type veth peer name " + b)
		if err != nil {
			break
		}
		undo = append(undo, a)
		for end, nic := range []string{a, b} {
			do("ip link set " + nic + " up")
			do("rdma link add " + nic + " type rxe netdev " + nic)
			nics[end] = append(nics[end], nic)
		}
	}
	if err == nil {
		time.Sleep(2 * time.Second) // the addresses are tentative until then
	}
	return nics, func() (err error) {
		for _, name := range undo { // the NICs go with it
			if out, e := exec.Command("ip", "link", "delete", name).CombinedOutput(); e != nil {
				err = errors.Join(err, fmt.Errorf("ip link delete %s: %w: %s", name, e, out))
			}
		}
		return err
	}, err
}
