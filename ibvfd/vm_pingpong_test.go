// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// What ibv_rc_pingpong is told. Its messages are those of its MTU's default.
const (
	pingSize   = 16384
	pingRounds = 20
	pingMTU    = 1024
	pingInto   = 32768 // where our memory takes messages; they leave from its start
)

// pingWord is what either side of ibv_rc_pingpong says of itself over TCP, with
// a zero byte behind it.
func pingWord(e ibvfd.Endpoint) []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%s\x00", e.LID, e.QPN, e.PSN, hex.EncodeToString(e.GID[:]))
}

func readPingWord(r io.Reader) (e ibvfd.Endpoint, err error) {
	word := make([]byte, len(pingWord(e)))
	if _, err := io.ReadFull(r, word); err != nil {
		return e, err
	}
	var gid []byte
	if _, err := fmt.Sscanf(string(word[:len(word)-1]), "%x:%x:%x:%x", &e.LID, &e.QPN, &e.PSN, &gid); err != nil {
		return e, fmt.Errorf("%q: %w", word, err)
	}
	copy(e.GID[:], gid)
	e.MTU = pingMTU
	return e, nil
}

// startPing starts ibv_rc_pingpong; the result waits for its end and returns
// its output.
func startPing(t *testing.T, local ibvfd.Endpoint, rounds int, args ...string) func() string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	cmd := exec.CommandContext(ctx, "ibv_rc_pingpong", append([]string{
		"-d", nic, "-g", fmt.Sprint(local.GIDIndex), "-c", "-e", "-r", "16", "-s", fmt.Sprint(pingSize), "-n", fmt.Sprint(rounds),
	}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := false
	wait := func() string {
		if !ended {
			ended = true
			if err := cmd.Wait(); err != nil {
				t.Errorf("%q: %v: %s", cmd.Args, err, out.Bytes())
			}
			cancel()
		}
		return out.String()
	}
	t.Cleanup(func() {
		if t.Failed() {
			cancel()
		}
		wait()
	})
	return wait
}

// ping is the message of a round. ibv_rc_pingpong looks at the first byte of
// each page, which is 0.
func ping(round int) []byte {
	p := make([]byte, pingSize)
	fill(p, uint64(round))
	for i := 0; i < len(p); i += os.Getpagesize() {
		p[i] = 0
	}
	return p
}

// pinger is our side.
type pinger struct {
	*end
	early uint64 // the completion that came before the one that was waited for
}

func (e *pinger) takePing(t *testing.T) {
	t.Helper()
	receive(t, e.qp, ibvfd.RecvWR{ID: 2, SGE: sge(e.mr, pingInto, pingSize)})
}

// sendPing sends a message and waits for its completion; with answered, also
// for that of the message that comes back.
func (e *pinger) sendPing(t *testing.T, p []byte, answered bool) {
	t.Helper()
	e.put(t, 0, p)
	post(t, e.qp, ibvfd.SendWR{ID: 1, Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: sge(e.mr, 0, len(p))})
	e.pinged(t, 1)
	if answered {
		e.pinged(t, 2)
	}
}

func (e *pinger) pinged(t *testing.T, id uint64) {
	t.Helper()
	if e.early == id {
		e.early = 0
		return
	}
	for {
		c := one(t, e.cq)
		if c.Err() != nil || c.ID == 2 && c.ByteLen != pingSize {
			t.Fatalf("%+v", c)
		}
		if c.ID == id {
			return
		}
		e.early = c.ID
	}
}

// We are the client of ibv_rc_pingpong: its one buffer takes our messages and sends
// them back, so that each message has to come back.
func TestVMPingpongServer(t *testing.T) {
	pd := openPD(t)
	talk := func(t *testing.T, rounds int, message func(round int) []byte) string {
		e := pinger{end: newEnd(t, pd, exporter)}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		l.Close()
		wait := startPing(t, e.qp.Local(), rounds, "-p", port)
		conn := dialPing(t, "127.0.0.1:"+port)
		defer conn.Close()
		if _, err := conn.Write(pingWord(e.qp.Local())); err != nil {
			t.Fatal(err)
		}
		remote, err := readPingWord(conn)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.qp.Connect(remote, patientPing); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("done\x00")); err != nil {
			t.Fatal(err)
		}
		for i := range rounds {
			p := message(i)
			e.takePing(t)
			e.sendPing(t, p, true)
			if !bytes.Equal(e.get(t, pingInto, pingSize), p) {
				t.Fatalf("round %d: what came back is not what was sent", i)
			}
		}
		return wait()
	}
	out := talk(t, pingRounds, ping)
	if strings.Contains(out, "invalid") || !strings.Contains(out, fmt.Sprint(pingRounds, " iters")) {
		t.Error(out)
	}
	// Its check does see our bytes.
	out = talk(t, 1, func(int) []byte { return bytes.Repeat([]byte{9}, pingSize) })
	if n := pingSize / os.Getpagesize(); strings.Count(out, "invalid data in page") != n {
		t.Errorf("%d pages were invalid: %s", n, out)
	}
}

// We are its server: the first message is its own, each later one is our last.
func TestVMPingpongClient(t *testing.T) {
	pd := openPD(t)
	e := pinger{end: newEnd(t, pd, exporter)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	wait := startPing(t, e.qp.Local(), pingRounds, "-p", port, "127.0.0.1")
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	remote, err := readPingWord(conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.qp.Init(patientPing); err != nil {
		t.Fatal(err)
	}
	e.takePing(t) // before it can send
	if err := e.qp.Connect(remote, patientPing); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(pingWord(e.qp.Local())); err != nil {
		t.Fatal(err)
	}
	done := make([]byte, len("done\x00"))
	if _, err := io.ReadFull(conn, done); err != nil || string(done) != "done\x00" {
		t.Fatalf("%q, %v", done, err)
	}
	want := bytes.Repeat([]byte{0x7b}, pingSize)
	for i := 0; i < len(want); i += os.Getpagesize() {
		want[i] = 0
	}
	for i := range pingRounds {
		e.pinged(t, 2)
		if !bytes.Equal(e.get(t, pingInto, pingSize), want) {
			t.Fatalf("round %d: what came is not what was sent", i)
		}
		if i < pingRounds-1 {
			e.takePing(t)
		}
		want = ping(i)
		e.sendPing(t, want, false)
	}
	if out := wait(); !strings.Contains(out, fmt.Sprint(pingRounds, " iters")) {
		t.Error(out)
	}
}

var patientPing = ibvfd.ConnectAttr{MTU: pingMTU, Timeout: 20, RetryCount: 3, MaxRead: 1}

// dialPing connects to a program that is about to listen.
func dialPing(t *testing.T, addr string) net.Conn {
	t.Helper()
	for range 1500 * testenv.Slow() {
		if conn, err := net.Dial("tcp", addr); err == nil {
			return conn
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("nobody listens at ", addr)
	return nil
}
