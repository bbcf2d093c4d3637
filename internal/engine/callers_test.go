// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// hostileCallers makes TestCallers the other process: "ADDRESS SAYS PER-SECOND MOST".
const hostileCallers = "GPURDMA_TEST_CALLERS"

// The bytes that hostile callers send before they stay silent.
const (
	saysNothing = "nothing"
	saysPlain   = "plain" // in turn nothing, half a hello, a hello
	saysTLS     = "tls"   // in turn nothing, half of TLS's first message, all of it
)

// hostileAddresses is the number of addresses of hostile callers, from 127.0.0.2 on.
const hostileAddresses = 16

// TestCallers is the other process, and no test. It calls until it reads a line, and prints
// the number of its calls.
func TestCallers(t *testing.T) {
	var addr, says string
	var perSecond, most int
	if n, _ := fmt.Sscan(os.Getenv(hostileCallers), &addr, &says, &perSecond, &most); n != 4 {
		t.Skip("it is the other process of the tests of many callers")
	}
	texts := [][]byte{nil}
	switch hello := recorded(t, exchange.Version); says {
	case saysPlain:
		texts = append(texts, hello[:len(hello)/2], hello)
	case saysTLS:
		hello = clientHello(t)
		texts = append(texts, hello[:len(hello)/2], hello)
	}
	over := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(over)
	}()
	var made, failed atomic.Int32
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	start := time.Now()
	for calls := 0; ; {
		for due := min(most, int(time.Since(start).Seconds()*float64(perSecond))); calls < due; calls++ {
			from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+calls%hostileAddresses))}
			text := texts[calls%len(texts)]
			go func() {
				c, err := (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).Dial("tcp", addr)
				if err != nil {
					if failed.Add(1) == 1 {
						fmt.Printf("\ncallers: the first that failed, after %v: %v\n", time.Since(start), err)
					}
					return
				}
				defer c.Close()
				made.Add(1)
				_, _ = c.Write(text)
				_, _ = io.Copy(io.Discard, c) // until the endpoint hangs up
			}()
		}
		select {
		case <-tick.C:
		case <-over:
			fmt.Printf("\ncallers: %d made, %d failed in %v, processor %v\n", made.Load(), failed.Load(), time.Since(start), testenv.ProcessTime(t))
			return
		}
	}
}

// clientHello is the first message of a TLS client.
func clientHello(t testing.TB) []byte {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() { _ = tls.Client(theirs, &tls.Config{ServerName: "127.0.0.1"}).Handshake() }()
	b := make([]byte, 1<<14)
	return b[:must(ours.Read(b))(t)]
}

// callHostile starts another process that calls as hostile callers do, until the test ends.
func callHostile(t *testing.T, addr, says string, perSecond, most int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCallers$", "-test.count=1")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", hostileCallers, addr, says, perSecond, most))
	in := must(cmd.StdinPipe())(t)
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = io.WriteString(in, "\n")
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "callers: ") {
				t.Log(strings.TrimSpace(line))
			}
		}
	})
}

// distant returns an address whose connections lead to addr, with a delay of way in each
// direction.
func distant(t *testing.T, addr string, way time.Duration) string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		tasks.Wait()
	})
	tasks.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			tasks.Go(func() { carry(far, near, way) })
			tasks.Go(func() { carry(near, far, way) })
		}
	})
	return l.Addr().String()
}

// carry copies bytes with a delay.
func carry(to, from net.Conn, way time.Duration) {
	type parcel struct {
		b   []byte
		due time.Time
	}
	road := make(chan parcel, 1000)
	go func() {
		defer close(road)
		for {
			b := make([]byte, 4<<10)
			n, err := from.Read(b)
			if n > 0 {
				road <- parcel{b[:n], time.Now().Add(way)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range road {
		time.Sleep(time.Until(p.due))
		_, _ = to.Write(p.b)
	}
	time.Sleep(way)
	_ = to.Close()
}

// watchBounds samples the goroutines and descriptors that this process has in addition, until
// the test ends.
func watchBounds(t *testing.T, who string, each int) {
	goroutines, descriptors := runtime.NumGoroutine(), testenv.Descriptors(t)
	most := [2]int{}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			most[0] = max(most[0], runtime.NumGoroutine()-goroutines)
			most[1] = max(most[1], testenv.Descriptors(t)-descriptors)
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-done
		t.Logf("%s: at most %d goroutines and %d descriptors more", who, most[0], most[1])
		if most[0] > 3*each || most[1] > each {
			t.Errorf("that is more than 3 times %d goroutines, or than %d descriptors", each, each)
		}
	})
}
