// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// traffic is what one run moves. perftest is given the same.
type traffic struct {
	through string // whose side of ours it is: throughIbvfd, throughEndpoint, throughFabric
	op      string // write, read, send
	latency bool   // one at a time, to and fro; else as many as fit
	size    int
	count   int // messages
	depth   int // work requests under way
	batch   int // posted in one call, of which the last makes a completion
	gid     int // index
	mtu     int
	reads   int // READs on their way
}

// What our side is made of.
const (
	throughIbvfd    = "ibvfd"    // work requests
	throughEndpoint = "endpoint" // the engine below package gpurdma
	throughFabric   = "fabric"   // package gpurdma
)

const (
	trafficDepth = 128
	trafficRecvs = 512
	trafficReads = 16
)

// args is the command line of a side.
func (t traffic) args(device string, port int) []string {
	return []string{
		"side", "-nic", device, "-through", t.through, "-op", t.op, "-latency=" + strconv.FormatBool(t.latency), "-size", strconv.Itoa(t.size),
		"-count", strconv.Itoa(t.count), "-depth", strconv.Itoa(t.depth), "-batch", strconv.Itoa(t.batch), "-gid", strconv.Itoa(t.gid),
		"-mtu", strconv.Itoa(t.mtu), "-reads", strconv.Itoa(t.reads), "-port", strconv.Itoa(port),
	}
}

// closers are the objects that a side has opened, in that order.
type closers []io.Closer

// close closes all of it, the last first.
func (l *closers) close() error {
	var errs []error
	for _, c := range slices.Backward(*l) {
		errs = append(errs, c.Close())
	}
	*l = nil
	return errors.Join(errs...)
}

var opcodes = map[string]ibvfd.Opcode{"write": ibvfd.OpWrite, "read": ibvfd.OpRead, "send": ibvfd.OpSend}

// pollBatch is how many completions perftest takes at once.
const pollBatch = 16

// times are the moments at which the messages of a latency run were posted.
type times []time.Duration

// median is the middle one of the intervals, in microseconds.
func (t times) median(messagesPerInterval float64) float64 {
	d := make([]time.Duration, len(t)-1)
	for i := range d {
		d[i] = t[i+1] - t[i]
	}
	slices.Sort(d)
	return float64(percentile(d, 0.5)) / 1e3 / messagesPerInterval
}

// passive says that a server of this traffic does nothing.
func (t traffic) passive() bool { return t.op == "read" || t.op == "write" && !t.latency }

func (t traffic) String() string {
	what := "rate"
	if t.latency {
		what = "latency"
	}
	return fmt.Sprintf("%s, %s, %d bytes", t.op, what, t.size)
}
