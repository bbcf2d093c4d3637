// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gpurdma/gpurdma/testbed/machine"
)

// Names of the virtio serial ports.
const (
	PortControl = "gpurdma.control"
	PortStdin   = "gpurdma.stdin"
	PortStdout  = "gpurdma.stdout"
	PortStderr  = "gpurdma.stderr"
)

// Mount tags of the 9p exports.
const (
	TagRoot    = "gpurdma.root"    // the host's root, read-only
	TagResults = "gpurdma.results" // a directory of the host that the guest may write
)

// Results is where the guest finds the writable directory.
const Results = "/run/gpurdma/results"

// PCI is where the guest finds a link to the sysfs directory of each PCI device
// whose place the machine's description fixes, by the device's ID.
const PCI = "/run/gpurdma/pci"

// Message is one line. Type says which of the other fields are set.
type Message struct {
	Type string

	Setup *Setup `json:",omitempty"` // setup, host to guest
	Run   *Run   `json:",omitempty"` // run, host to guest
	Exit  *Exit  `json:",omitempty"` // exit, guest to host

	Text   string `json:",omitempty"` // hello: the kernel's release; fatal: the error; progress: a step
	Key    string `json:",omitempty"` // sysrq: the key
	Signal int    `json:",omitempty"` // signal: its number
	Size   int64  `json:",omitempty"` // eof: the position where standard input ends
	Rows   uint16 `json:",omitempty"` // resize
	Cols   uint16 `json:",omitempty"` // resize
}

// Message types.
const (
	Hello    = "hello"    // guest: init is up
	SetUp    = "setup"    // host: what to set up
	Ready    = "ready"    // guest: set up
	Progress = "progress" // guest: the step that it is at
	Beat     = "beat"     // guest: still alive, every BeatSeconds
	Fatal    = "fatal"    // guest: cannot go on
	RunCmd   = "run"      // host: run a command
	Exited   = "exit"     // guest: the command ended
	Signal   = "signal"   // host: signal the command
	Resize   = "resize"   // host: the terminal's size changed
	EOF      = "eof"      // host: standard input ends here
	SysRq    = "sysrq"    // host: press a magic system request key
	PowerOff = "poweroff" // host: sync and power off
)

// BeatSeconds is how often the guest says that it is alive.
const BeatSeconds = 1

// Setup tells init what to set up after the modules are loaded.
type Setup struct {
	Hostname   string
	ModuleDir  string            // becomes /lib/modules/RELEASE
	Replace    map[string]string // file below ModuleDir to the host's file that hides it
	Modprobe   string            // a modprobe.d file
	Root       string            // the host's directory that becomes the guest's root; empty: the host's root
	Expose     []string          // paths of the host to show although a fresh file system, or Root, hides them
	Interfaces []machine.Interface
	RDMA       []machine.RDMA
	PCI        map[string][]string // machine.Node.PCIPaths
}

// Run is a command.
type Run struct {
	Args  []string
	Dir   string
	Env   []string
	Stdin bool // standard input is forwarded; otherwise it is /dev/null
	// StdinAt is the position of its first byte among all that were ever
	// sent over the port.
	StdinAt int64
	TTY     bool // the streams are one terminal, on the ports for stdin and stdout
	Rows    uint16
	Cols    uint16
}

// Exit is how a command ended.
type Exit struct {
	Status int    // exit status; 128 plus the signal's number if a signal ended it; 126, 127 as in shells
	Signal string `json:",omitempty"`
	Error  string `json:",omitempty"` // the command could not be started
	Stdout int64  // bytes written
	Stderr int64
	Left   string `json:",omitempty"` // processes that would not die
}

// Conn sends and receives messages. Send may be called concurrently.
type Conn struct {
	mu sync.Mutex
	w  io.Writer
	r  *bufio.Scanner
}

// maxLine bounds a message: a command line and its environment fit well.
const maxLine = 8 << 20

// NewConn returns a connection over rw.
func NewConn(rw io.ReadWriter) *Conn {
	s := bufio.NewScanner(rw)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Conn{w: rw, r: s}
}

// Send writes one message.
func (c *Conn) Send(m Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) >= maxLine {
		return fmt.Errorf("message %s of %d bytes is too long: at most %d", m.Type, len(b), maxLine)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.w.Write(append(b, '\n'))
	return err
}

// Receive reads one message; io.EOF says that the other side is gone.
func (c *Conn) Receive() (Message, error) {
	var m Message
	if !c.r.Scan() {
		if err := c.r.Err(); err != nil {
			return m, err
		}
		return m, io.EOF
	}
	if err := json.Unmarshal(c.r.Bytes(), &m); err != nil {
		return m, fmt.Errorf("bad message %q: %w", c.r.Text(), err)
	}
	if m.Type == "" {
		return m, errors.New("message without a type")
	}
	return m, nil
}
