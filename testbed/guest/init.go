// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/testbed/initrd"
	"github.com/gpurdma/gpurdma/testbed/wire"
)

// IsInit says whether this process is init of one of our machines. PID 1 alone
// would not do: in a container, it can be any program.
func IsInit() bool {
	if os.Getpid() != 1 {
		return false
	}
	_, err := os.Stat(initrd.ListPath)
	return err == nil
}

// Main runs as init. It does not return.
func Main() {
	err := run()
	// The console is what the host keeps as the kernel's log.
	fmt.Fprintf(os.Stderr, "init: %v\n", err)
	time.Sleep(200 * time.Millisecond)
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

// guest is the state of init.
type guest struct {
	conn                  *wire.Conn
	stdin, stdout, stderr *os.File
	reaper                *reaper
	input                 *input
}

func run() error {
	if err := earlyMounts(); err != nil {
		return err
	}
	if err := loadModules("early"); err != nil {
		return err
	}
	g := &guest{reaper: newReaper()}
	control, err := openPort(wire.PortControl)
	if err != nil {
		return err
	}
	g.conn = wire.NewConn(control)
	err = g.serve()
	g.conn.Send(wire.Message{Type: wire.Fatal, Text: err.Error()})
	return err
}

// serve does what the host says until something fails: it has no other end.
func (g *guest) serve() error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	release := unix.ByteSliceToString(uts.Release[:])
	if err := g.conn.Send(wire.Message{Type: wire.Hello, Text: release}); err != nil {
		return err
	}
	go func() {
		for {
			if err := g.conn.Send(wire.Message{Type: wire.Beat}); err != nil {
				return
			}
			time.Sleep(wire.BeatSeconds * time.Second)
		}
	}()
	for name, dst := range map[string]**os.File{
		wire.PortStdin: &g.stdin, wire.PortStdout: &g.stdout, wire.PortStderr: &g.stderr,
	} {
		var err error
		if *dst, err = openPort(name); err != nil {
			return err
		}
	}
	g.input = newInput(g.stdin)
	for {
		m, err := g.conn.Receive()
		if errors.Is(err, io.EOF) {
			return errors.New("the host closed the control port")
		}
		if err != nil {
			return fmt.Errorf("control port: %w", err)
		}
		switch m.Type {
		case wire.SetUp:
			if err := g.setUp(release, *m.Setup); err != nil {
				return err
			}
			err = g.conn.Send(wire.Message{Type: wire.Ready})
		case wire.RunCmd:
			g.start(*m.Run)
		case wire.Signal:
			g.signal(unix.Signal(m.Signal))
		case wire.Resize:
			g.resize(m.Rows, m.Cols)
		case wire.EOF:
			g.input.eof(m.Size)
		case wire.SysRq:
			err = os.WriteFile("/proc/sysrq-trigger", []byte(m.Key), 0)
		case wire.PowerOff:
			unix.Sync()
			err = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Type, err)
		}
	}
}

func (g *guest) progress(format string, args ...any) {
	g.conn.Send(wire.Message{Type: wire.Progress, Text: fmt.Sprintf(format, args...)})
}

// openPort opens the virtio serial port of a name. The device appears with
// its driver, a moment after the module is loaded.
func openPort(name string) (*os.File, error) {
	deadline := time.Now().Add(10 * time.Second)
	for {
		dev, err := findPort(name)
		if err == nil {
			return os.OpenFile("/dev/"+dev, os.O_RDWR, 0)
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func findPort(name string) (string, error) {
	const class = "/sys/class/virtio-ports"
	ports, err := os.ReadDir(class)
	if err != nil {
		return "", err
	}
	for _, p := range ports {
		b, err := os.ReadFile(class + "/" + p.Name() + "/name")
		if err == nil && strings.TrimSpace(string(b)) == name {
			return p.Name(), nil
		}
	}
	return "", fmt.Errorf("no virtio serial port %q among %d", name, len(ports))
}
