// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package fi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nicAddress is the address of testNIC's network interface, for rdma_cm.
const nicAddress = "10.9.0.1"

// libfabric runs rows with the C program fi-rma (testbed/cprog), over libfabric's verbs provider.
type libfabric struct {
	t              testing.TB
	in             io.Writer
	out            *bufio.Scanner
	connectionless bool
	noLengths      bool // its ofi_rxm does not report how many bytes came with data
}

// startLibfabric starts fi-rma with Debian's libfabric.
func startLibfabric(t testing.TB) *libfabric {
	t.Helper()
	l := startRMA(t, nil, "fi-rma", nicAddress)
	l.noLengths = true
	return l
}

// startLibfabric2 starts fi-rma with the libfabric that `make libfabric` builds. Its memory is that of
// an exporter, as fi-rma names it, or the host's. Debian's rxe provider has no ibv_reg_dmabuf_mr: that is
// preloaded.
func startLibfabric2(t testing.TB, exporter string) *libfabric {
	t.Helper()
	const build = "../build"
	if _, err := os.Stat(build + "/libfabric/version"); err != nil {
		t.Skip("make libfabric has built none")
	}
	env := []string{"LD_LIBRARY_PATH=" + build + "/libfabric/lib"}
	args := []string{build + "/libfabric/bin/fi-rma", nicAddress}
	if exporter != "" {
		env = append(env, "LD_PRELOAD="+must(filepath.Abs(build+"/bin/preload.so"))(t))
		args = append(args, exporter)
	}
	return startRMA(t, env, args...)
}

func startRMA(t testing.TB, env []string, args ...string) *libfabric {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*bound)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), env...)
	in, out := must(cmd.StdinPipe())(t), must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatalf("the C program (make cprog): %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("fi-rma: %v", err)
		}
	})
	return &libfabric{t: t, in: in, out: bufio.NewScanner(out)}
}

func (l *libfabric) mode(connectionless bool) {
	l.t.Helper()
	l.connectionless = connectionless
	l.tell("mode %s", map[bool]string{true: "rdm", false: "msg"}[connectionless])
}

func (l *libfabric) tell(format string, args ...any) {
	l.t.Helper()
	if _, err := fmt.Fprintf(l.in, format+"\n", args...); err != nil {
		l.t.Fatal("fi-rma: ", err)
	}
}

func (l *libfabric) answer(into any) {
	l.t.Helper()
	if !l.out.Scan() {
		l.t.Fatal("fi-rma has ended: ", l.out.Err())
	}
	if err := json.Unmarshal(l.out.Bytes(), into); err != nil {
		l.t.Fatalf("fi-rma: %v in %q", err, l.out.Text())
	}
}

func (l *libfabric) open(selective bool) {
	l.t.Helper()
	l.tell("open%s", map[bool]string{true: " selective"}[selective])
	l.answer(&struct{}{})
}

func (l *libfabric) run(r rmaRow, first int) (out rmaOutcome) {
	l.t.Helper()
	l.tell("fill")
	for i, op := range r.ops {
		if op.hasData() && !l.connectionless {
			l.tell("recv %d", rmaRecv+first+i)
		}
	}
	for i, op := range r.ops {
		l.tell("post %s %v %s %s %d %d", op.call, op.flags, op.local, strings.ReplaceAll(op.remote, "!", ""), op.data, first+i)
		if op.change {
			l.tell("change")
		}
	}
	l.tell("done")
	l.answer(&out)
	out.Far = slices.DeleteFunc(out.Far, func(e rmaEvent) bool { return e.Status != 0 })
	return out
}

// rmaOffers are the provider's attributes.
type rmaOffers struct {
	InjectSize  int `json:"inject_size"`
	IOVLimit    int `json:"iov_limit"`
	RMAIOVLimit int `json:"rma_iov_limit"`
	DataSize    int `json:"data_size"`
	Flags       map[string]bool
}

// The provider and this package do the same with each row, except for the differences in the
// table.
//
//testbed:kernel 6.12
func TestVMLibfabric(t *testing.T) {
	compareWithLibfabric(t, onNIC(t), startLibfabric(t))
}

// The same with libfabric 2, with host memory, and with dma-bufs that it registers by FI_MR_DMABUF.
//
//testbed:kernel 6.12
func TestVMLibfabric2(t *testing.T) {
	s := onNIC(t)
	for name, exporter := range map[string]string{"host": "", "dma-buf": "vgem"} {
		t.Run(name, func(t *testing.T) {
			compareWithLibfabric(t, s, startLibfabric2(t, exporter))
		})
	}
}

func compareWithLibfabric(t *testing.T, s setting, c *libfabric) {
	t.Helper()
	c.mode(false)
	checkOffers(t, c)
	for _, x := range rmaSessions {
		t.Run(x.name, func(t *testing.T) {
			c.t = t
			if c.connectionless != x.connectionless {
				c.mode(x.connectionless)
			}
			ours := &ourRMA{
				t: t, s: s, local: hostKind, remote: exported("drm:vgem", "drm:vgem", DirectOnly),
				inject: rmaInject, connectionless: x.connectionless,
			}
			fresh := true
			for i, r := range x.rows {
				if fresh {
					c.open(x.selective)
					ours.open(x.selective)
				}
				a, b := c.run(r, 10*i), ours.run(r, 10*i)
				for i := range b.Far {
					if c.noLengths && x.connectionless {
						b.Far[i].Len = 0
					}
				}
				same := a.full() == b.full()
				d, listed := rmaDifferences[x.name+": "+r.name]
				switch {
				case !listed && !same:
					t.Errorf("%s:\nlibfabric %v\n          %s\nours      %v\n          %s", r.name, a, a.full(), b, b.full())
				case listed && same:
					t.Errorf("%s: the difference is gone: %v", r.name, a)
				case listed && (a.String() != d.provider || b.String() != d.ours):
					t.Errorf("%s: libfabric %v; ours %v; the table of differences has %q and %q", r.name, a, b, d.provider, d.ours)
				}
				fresh = !same || a.Dead
			}
		})
	}
}

func checkOffers(t *testing.T, c *libfabric) {
	t.Helper()
	var offers rmaOffers
	c.tell("offers")
	c.answer(&offers)
	want := rmaOffers{InjectSize: rmaInject, IOVLimit: 4, RMAIOVLimit: 1, DataSize: 4, Flags: maps.Clone(offers.Flags)}
	for _, o := range opFlags {
		_, not := rmaNotOffered[o.flag]
		want.Flags[o.flag.String()] = !not
	}
	if fmt.Sprint(offers) != fmt.Sprint(want) {
		t.Errorf("the provider offers %+v, the tests take it to offer %+v", offers, want)
	}
}
