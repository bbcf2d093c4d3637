// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/internal/human"
)

// Bounds of messages.
const (
	MaxNodes   = 4 << 10
	MaxNICs    = 64
	maxName    = 255
	maxText    = 1 << 10
	maxRelease = 100
	tokenSize  = 32 // hexadecimal digits

	maxSize    = 1 << 30
	maxDepth   = 1 << 10
	maxVolume  = 1 << 34
	maxTime    = time.Minute
	maxSmall   = 1 << 20
	maxTimeout = 5 * time.Minute
)

// Text bounds a text for a message, and takes out what is no UTF-8.
func Text(s string) string {
	return human.Short(strings.ToValidUTF8(s, "?"), maxText-8)
}

// check refuses a message with parts that no side sends. fromWorker says which side has sent it.
func (m *Message) check(fromWorker bool) error {
	orders, answers := m.parts()
	switch {
	case orders+answers > 1:
		return fmt.Errorf("a message with %d parts", orders+answers)
	case fromWorker && orders > 0:
		return fmt.Errorf("a worker gives an order")
	case !fromWorker && answers > 0:
		return fmt.Errorf("a coordinator gives an answer")
	case !fromWorker && orders == 0:
		return fmt.Errorf("a message with no order")
	}
	switch {
	case m.Hello != nil:
		return m.Hello.check()
	case m.Welcome != nil:
		return m.Welcome.check()
	case m.Roster != nil:
		return m.Roster.check()
	case m.Expect != nil:
		return first(m.Expect.Token.check(), name("NIC", m.Expect.NIC), m.Expect.Plan.Check(), m.Expect.Caller.check())
	case m.Measure != nil:
		return first(m.Measure.Token.check(), name("NIC", m.Measure.NIC), m.Measure.Plan.Check(),
			within("node", int64(m.Measure.To), 0, MaxNodes-1), within("port", int64(m.Measure.Port), 1, math.MaxUint16), m.Measure.Permit.check())
	case m.Release != nil:
		return m.Release.Token.check()
	case m.Outcome != nil:
		return m.Outcome.check()
	case m.Permit != nil:
		return m.Permit.check()
	case m.Fault != nil:
		return m.Fault.check()
	}
	return nil
}

func (m *Message) parts() (orders, answers int) {
	for _, there := range []bool{m.Hello != nil, m.Roster != nil, m.Expect != nil, m.Measure != nil, m.Release != nil, m.Ping} {
		if there {
			orders++
		}
	}
	for _, there := range []bool{m.Welcome != nil, m.Outcome != nil, m.Permit != nil, m.Fault != nil} {
		if there {
			answers++
		}
	}
	return orders, answers
}

func (h *Hello) check() error {
	return first(text("protocol", h.Protocol, maxName), text("release", h.Release, maxRelease))
}

func (w *Welcome) check() error {
	if err := first(w.Hello.check(), text("host", w.Host, maxName), within("number of NICs", int64(len(w.NICs)), 0, MaxNICs)); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, n := range w.NICs {
		if seen[n.Name] {
			return fmt.Errorf("two NICs of the name %q", human.Short(n.Name, 40))
		}
		seen[n.Name] = true
		least := int64(1)
		if n.Fault != nil {
			least = 0
			if err := n.Fault.check(); err != nil {
				return err
			}
		}
		if err := first(name("NIC", n.Name), within("port", int64(n.Port), least, math.MaxUint16), text("memory", n.Memory, maxName),
			within("size", n.Size, least, math.MaxInt64), text("path", n.Path, maxName), text("why", n.Why, maxText)); err != nil {
			return err
		}
	}
	return w.Session.check()
}

func (r *Roster) check() error {
	if err := first(within("number of nodes", int64(len(r.Hosts)), 1, MaxNodes), within("node", int64(r.Self), 0, int64(len(r.Hosts))-1)); err != nil {
		return err
	}
	for _, h := range r.Hosts {
		if err := name("host", h); err != nil {
			return err
		}
	}
	return nil
}

func (t Token) check() error {
	if len(t) != tokenSize || strings.Trim(string(t), "0123456789abcdef") != "" {
		return fmt.Errorf("%q is no token", human.Short(string(t), 40))
	}
	return nil
}

// Check refuses a plan that takes more than a worker gives.
func (p *Plan) Check() error {
	return first(
		within("size", p.Size, 1, maxSize), within("depth", int64(p.Depth), 1, maxDepth), within("volume", p.Volume, 1, maxVolume),
		within("time", int64(p.Time), 1, int64(maxTime)), within("number of small operations", int64(p.Small), 1, maxSmall),
		within("timeout", int64(p.Timeout), int64(time.Millisecond), int64(maxTimeout)))
}

func (o *Outcome) check() error {
	if o.Fault != nil {
		if err := o.Fault.check(); err != nil {
			return err
		}
	}
	for _, r := range []Rate{o.Out, o.In} {
		if err := first(within("bytes", r.Bytes, 0, 2*maxVolume+maxDepth*maxSize), within("time", int64(r.Time), 0, int64(maxTime+2*maxTimeout))); err != nil {
			return err
		}
	}
	return first(text("over", o.Over, maxText), within("number of operations", int64(o.Latency.Count), 0, maxSmall),
		within("time", int64(o.Latency.P50), 0, int64(maxTimeout)), within("time", int64(o.Latency.P99), 0, int64(maxTimeout)))
}

func (f *Fault) check() error {
	return first(text("cause", string(f.Cause), 20), text("step", f.Step, maxName), text("fault", f.Text, maxText))
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func within(what string, n, least, most int64) error {
	if n < least || n > most {
		return fmt.Errorf("%s %d is not %d to %d", what, n, least, most)
	}
	return nil
}

func text(what, s string, most int) error {
	if len(s) > most || !utf8.ValidString(s) {
		return fmt.Errorf("%s of %d bytes, of at most %d", what, len(s), most)
	}
	return nil
}

// name refuses what is no name of a NIC or a host.
func name(what, s string) error {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%q is no name of a %s", human.Short(s, 40), what)
	}
	return text(what, s, maxName)
}
