// SPDX-License-Identifier: Apache-2.0

package control

import "time"

// Protocol is the name that both sides send first. Version is that of all messages: sides with different
// versions do not talk.
const (
	Protocol = "dmabuf-reg mesh"
	Version  = 2
)

// Message is one message. It has one of its parts, or none: an answer without a part says that an
// order was carried out.
type Message struct {
	ID uint64 `json:"id,omitempty"` // of an order, and of its answer

	// The coordinator begins with Hello, and the worker answers with Welcome or Fault.
	Hello   *Hello   `json:"hello,omitempty"`
	Welcome *Welcome `json:"welcome,omitempty"`

	// Orders.
	Roster  *Roster  `json:"roster,omitempty"`
	Expect  *Expect  `json:"expect,omitempty"`
	Measure *Measure `json:"measure,omitempty"`
	Release *Release `json:"release,omitempty"`
	Ping    bool     `json:"ping,omitempty"`

	// Answers.
	Outcome *Outcome `json:"outcome,omitempty"` // of Measure and Release
	Permit  *Permit  `json:"permit,omitempty"`  // of Expect, with TLS
	Fault   *Fault   `json:"fault,omitempty"`   // the order was not carried out
}

// Hello is what a side says of itself.
type Hello struct {
	Protocol string `json:"protocol"`
	Version  int    `json:"version"`
	Release  string `json:"release"` // of the program
}

// Welcome is a worker's Hello, and what it has.
type Welcome struct {
	Hello
	Host string `json:"host"` // the machine's own name
	NICs []NIC  `json:"nics"`
	// Session is a number of this session. The permits for what the worker measures are for it.
	Session Token `json:"session"`
}

// NIC is a NIC of a worker, and the memory that it moves bytes of.
type NIC struct {
	Name   string `json:"name"`   // the name of the NIC
	Port   int    `json:"port"`   // the TCP port on which this NIC is called
	Memory string `json:"memory"` // the name of the memory: "host", "cuda:0"
	Size   int64  `json:"size"`   // the bytes of that memory
	// Path is how the NIC reaches the memory: "host", "direct", "moved", "staged", or "unknown" if the
	// place of the bytes of a GPU was not looked at.
	Path  string `json:"path"`
	Why   string `json:"why"`             // the path and its reason, in words
	Fault *Fault `json:"fault,omitempty"` // why the NIC takes no part
}

// Roster is all nodes of the mesh, by their hosts: a worker measures towards no other.
type Roster struct {
	Hosts []string `json:"hosts"`
	Self  int      `json:"self"` // the worker's own place among them
}

// Token names a measurement. The worker that is called lets in only a caller that has it.
type Token string

// Expect makes a NIC take one caller, with a token.
type Expect struct {
	Token  Token  `json:"token"`
	Caller Token  `json:"caller"` // the session of the worker that is to call
	NIC    string `json:"nic"`
	Plan   Plan   `json:"plan"`
}

// Measure makes a NIC call that of another node, and measure.
type Measure struct {
	Token Token  `json:"token"`
	NIC   string `json:"nic"`
	To    int    `json:"to"`   // the node, by its place in the roster
	Port  int    `json:"port"` // of the NIC there
	Plan  Plan   `json:"plan"`
	// Permit is the answer of the worker there to Expect. With TLS nothing is measured without it.
	Permit *Permit `json:"permit,omitempty"`
}

// Release ends what a worker does for a token. The answer comes when the NIC is free.
type Release struct {
	Token Token `json:"token"`
}

// Plan says what is measured.
type Plan struct {
	Size    int64         `json:"size"`    // bytes of an operation of the rate
	Depth   int           `json:"depth"`   // such operations under way
	Volume  int64         `json:"volume"`  // bytes moved in each direction, at most
	Time    time.Duration `json:"time"`    // of each of latency, rate out and rate in, at most
	Small   int           `json:"small"`   // operations for the latency
	Timeout time.Duration `json:"timeout"` // of each step
}

// Outcome is what came of a measurement.
type Outcome struct {
	// Reached says that bytes were written and read back, and that all of them were right.
	Reached bool   `json:"reached"`
	Out     Rate   `json:"out"` // from the caller to the NIC that was called, by WRITE
	In      Rate   `json:"in"`  // back, by READ
	Latency Times  `json:"latency"`
	Over    string `json:"over"`            // both NICs' addresses, and why these
	Fault   *Fault `json:"fault,omitempty"` // why it did not come to the end
}

// Rate is bytes and the time that they took.
type Rate struct {
	Bytes int64         `json:"bytes"`
	Time  time.Duration `json:"time"`
}

// PerSecond is the rate in bytes a second, 0 if nothing was measured.
func (r Rate) PerSecond() float64 {
	if r.Time <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Time.Seconds()
}

// Times are those of single WRITEs, from posting to completion.
type Times struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
}

// Fault says what did not work.
type Fault struct {
	Cause Cause  `json:"cause"` // the cause of the fault
	Step  string `json:"step"`  // the step that was tried, in words
	Text  string `json:"text"`  // the error
}

func (f *Fault) Error() string {
	if f.Step == "" {
		return f.Text
	}
	return f.Step + ": " + f.Text
}

// Cause is what kept two NICs from each other, for programs.
type Cause string

// The causes.
const (
	NoRoute   Cause = "routing"   // no route, or no neighbour, to the other node or its NIC
	NoGID     Cause = "gid"       // a NIC has no GID that it could use
	SmallMTU  Cause = "mtu"       // small packets pass, and full ones do not
	Partition Cause = "partition" // a port does not have the P_Key
	Refused   Cause = "refused"   // no listener, or the other side does not let this one in
	Timeout   Cause = "timeout"   // no answer
	Identity  Cause = "identity"  // a certificate is not accepted, or one side has none
	Name      Cause = "name"      // the host's name is not known
	Port      Cause = "port"      // the NIC's port is down, or the NIC is not there
	Memory    Cause = "memory"    // the memory could not be made, registered or read
	Corrupt   Cause = "corrupt"   // bytes were wrong
	Access    Cause = "access"    // the NIC of the other side refused the access
	Gone      Cause = "gone"      // the other side ended the connection
	Stopped   Cause = "stopped"   // the measurement was ended before its end
	Busy      Cause = "busy"      // another coordinator has the worker
	TooSlow   Cause = "slow"      // a host was too busy to connect in time, which says nothing of its NIC
	Differs   Cause = "version"   // the sides speak different versions
	Invalid   Cause = "invalid"   // an order that a worker does not take
	Other     Cause = "other"     // none of these
)
