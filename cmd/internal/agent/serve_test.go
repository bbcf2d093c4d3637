// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// serverOf makes this test binary a server, whose memory the test then bounds.
const serverOf = "GPURDMA_AGENT_SERVER"

// pairs is how many pairs the served node has: more than one with 16 GPUs and 16 NICs.
const pairs = 2000

// metrics are those of a node with many pairs.
func metrics() prometheus.Gatherer {
	registry := prometheus.NewPedanticRegistry()
	outcome := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "p2pcheck_pair_outcome", Help: "x"}, []string{"gpu", "nic", "outcome"})
	registry.MustRegister(outcome)
	for i := range pairs {
		outcome.WithLabelValues(fmt.Sprintf("0000:%02x:00.0", i/16), fmt.Sprint("mlx5_", i), "direct").Set(1)
	}
	return registry
}

// whole reports why a text is not that of all metrics.
func whole(text []byte) error {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if n := len(families["p2pcheck_pair_outcome"].GetMetric()); n != pairs {
		return fmt.Errorf("%d pairs", n)
	}
	return nil
}

func TestMain(m *testing.M) {
	if os.Getenv(serverOf) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		answer := Answer{Metrics: NewPage(metrics())}
		err = Serve(context.Background(), l, Share(func(context.Context) Answer { return answer }, 0))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// server starts a server in a process of its own.
func server(t *testing.T) (address string, pid int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), serverOf+"=1")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), c.Process.Pid
}

// request asks for what costs the server most: compressed, if it does that.
const request = "GET /metrics HTTP/1.1\r\nHost: node\r\nAccept: application/openmetrics-text\r\nAccept-Encoding: gzip\r\n"

// hostile are clients that cost a server memory: each writes what it likes to a connection.
var hostile = map[string]func(net.Conn){
	"silent":           func(net.Conn) {},
	"unfinished":       func(c net.Conn) { _, _ = io.WriteString(c, request+"X: ") },
	"endless header":   func(c net.Conn) { endless(c, request+"X: ") },
	"endless headers":  func(c net.Conn) { endless(c, request, "X: y\r\n") },
	"endless request":  func(c net.Conn) { endless(c, "GET /") },
	"endless body":     func(c net.Conn) { endless(c, request+"Content-Length: 1000000000\r\n\r\n") },
	"chunks":           func(c net.Conn) { endless(c, request+"Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n") },
	"many requests":    func(c net.Conn) { endless(c, "", request+"\r\n") }, // and it reads no answer
	"a byte at a time": func(c net.Conn) { slow(c, request) },
	"upgrade":          func(c net.Conn) { endless(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") },
}

// endless writes a head, and then 1,000 KiB of the same text.
func endless(c net.Conn, head string, more ...string) {
	text := strings.Join(append(more, ""), "")
	if text == "" {
		text = "x"
	}
	text = strings.Repeat(text, 4096/len(text)+1)
	_, _ = io.WriteString(c, head)
	for n := 0; n < 1000<<10; n += len(text) {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

func slow(c net.Conn, text string) {
	for i := range text {
		if _, err := io.WriteString(c, text[i:i+1]); err != nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// 2,000 hostile connections of any kind cost at most 64 MB, and a scrape is answered after them.
func TestHostileClients(t *testing.T) {
	testenv.Exhaustive(t)
	const clients, most = 2000, 64 << 20
	for kind, write := range hostile {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // they wait for the server's deadlines
			address, pid := server(t)
			var all sync.WaitGroup
			stop := make(chan struct{})
			for range clients {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				// The client stays until the scrape is answered, or the server ends the connection.
				all.Go(func() {
					defer c.Close()
					_ = c.SetWriteDeadline(time.Now().Add(30 * time.Second))
					write(c)
					<-stop
				})
			}
			client := http.Client{Timeout: 3 * time.Minute}
			r, err := client.Get("http://" + address + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r.Body)
			if err := cmp.Or(err, whole(text)); err != nil {
				t.Errorf("%d bytes, %v", len(text), err)
			}
			r.Body.Close()
			close(stop)
			all.Wait()
			switch got, err := testenv.PeakMemory(pid); {
			case err != nil:
				t.Error(err)
			case got > most:
				t.Errorf("%d MiB, at most %d", got>>20, most>>20)
			default:
				t.Logf("%d MiB", got>>20)
			}
		})
	}
}

// Each of 500 scrapes at once is answered.
func TestManyScrapes(t *testing.T) {
	address, _ := server(t)
	var list []net.Conn // each request is written at once: the server does not wait long for its head
	for range 500 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{} // which are looked at when all are there: to parse them keeps clients from reading in time
	for _, c := range list {
		all.Go(func() {
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			text, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("%d, %d bytes, %v", r.StatusCode, len(text), err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[string(text)]++
		})
	}
	all.Wait()
	for text, n := range answers {
		if err := whole([]byte(text)); err != nil {
			t.Errorf("%d answers of %d bytes: %v", n, len(text), err)
		}
	}
}

// Paths and methods that are not served are no looks.
func TestOtherRequests(t *testing.T) {
	looks := 0
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, Share(func(context.Context) Answer { looks++; return Answer{Metrics: NewPage(metrics())} }, 0))
	}()
	for what, want := range map[string]int{
		"GET /": 404, "GET /metrics/x": 404, "POST /metrics": 405, "GET /healthz": 200, "DELETE /healthz": 405,
	} {
		method, path, _ := strings.Cut(what, " ")
		q, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %d, want %d", what, r.StatusCode, want)
		}
	}
	cancel()
	if err := <-ended; err != nil || looks != 0 {
		t.Errorf("%v, %d looks", err, looks)
	}
}

// A scrape is answered in the form that its client asks for, and the metrics in it are those of the look.
func TestForms(t *testing.T) {
	address, _ := server(t)
	for accept, want := range map[string]string{
		"":                                     "text/plain; version=0.0.4",
		"text/html":                            "text/plain; version=0.0.4",
		"text/plain":                           "text/plain; version=0.0.4",
		"application/openmetrics-text":         "application/openmetrics-text; version=",
		"application/vnd.google.protobuf; q=x": "text/plain; version=0.0.4",
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", accept)
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), want) || strings.Count(string(text), "\np2pcheck_pair_outcome{") != pairs {
			t.Errorf("%q: %d, %q, %d bytes, %v", accept, r.StatusCode, r.Header.Get("Content-Type"), len(text), err)
		}
		if strings.HasSuffix(string(text), "# EOF\n") != strings.HasPrefix(want, "application/openmetrics-text") {
			t.Errorf("%q: %s", accept, text[len(text)-80:])
		}
	}
}
