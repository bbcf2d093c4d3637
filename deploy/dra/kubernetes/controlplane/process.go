// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// process is a component that runs.
type process struct {
	name  string
	log   string // the file that has its standard output and error
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{} // closed after it has ended
}

// start starts a component.
func start(dir, name string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(self, args...)
	p.cmd.Env = append(os.Environ(), asComponent+"="+name)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// stop ends the component and waits for its end.
func (p *process) stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// failed is the error of a component that has ended by itself, with the end of its log; nil while it runs.
func (p *process) failed() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.log)
	if lines := bytes.Split(bytes.TrimSpace(text), []byte("\n")); len(lines) > 20 {
		text = bytes.Join(lines[len(lines)-20:], []byte("\n"))
	}
	return fmt.Errorf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, text)
}
