// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"testing"
	"time"
)

// They have ended when the last has, and closing waits for nobody.
func TestProcesses(t *testing.T) {
	var pids []int
	var running []*exec.Cmd
	for range 2 {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		running, pids = append(running, c), append(pids, c.Process.Pid)
	}
	p, err := openProcesses(pids)
	if err != nil {
		t.Fatal(err)
	}
	ended := func(within time.Duration) bool {
		select {
		case <-p.ended:
			return true
		case <-time.After(within):
			return false
		}
	}
	running[0].Process.Kill()
	running[0].Wait()
	if ended(50 * time.Millisecond) {
		t.Error("one of them runs")
	}
	running[1].Process.Kill()
	if !ended(time.Minute) {
		t.Error("both have ended") // and of the second nobody has asked for the status yet
	}
	p.close()

	if p, err = openProcesses([]int{running[1].Process.Pid}); err != nil || !ended(time.Minute) {
		t.Errorf("one that has ended before: %v", err)
	}
	p.close()
	running[1].Wait()
	if p, err := openProcesses(pids[1:]); err == nil {
		p.close()
		t.Error("there is no such process")
	}
	if p, err = openProcesses(nil); err != nil || ended(50*time.Millisecond) {
		t.Errorf("none: %v", err)
	}
	p.close()
}
