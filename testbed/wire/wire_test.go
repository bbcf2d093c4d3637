// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// TestConn sends messages, one longer than any buffer, and one with line ends
// inside, and gets the same.
func TestConn(t *testing.T) {
	msgs := []Message{
		{Type: Hello, Text: "6.12.117+deb12-amd64"},
		{Type: RunCmd, Run: &Run{Args: []string{"sh", "-c", "echo\nhi"}, Env: []string{"A=" + strings.Repeat("x", 1<<20)}, StdinAt: 5}},
		{Type: Exited, Exit: &Exit{Status: 137, Signal: "SIGKILL", Stdout: 1 << 40, Stderr: 2, Left: "12 sh in f"}},
		{Type: Exited, Exit: &Exit{Status: 0}},
		{Type: Resize, Rows: 24, Cols: 80},
		{Type: Beat},
	}
	var line bytes.Buffer
	c := NewConn(&line)
	for _, m := range msgs {
		if err := c.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range msgs {
		got, err := c.Receive()
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("message %d: got %+v, want %+v", i, got, want)
		}
	}
	if _, err := c.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want io.EOF", err)
	}
}

func TestReceiveErrors(t *testing.T) {
	for _, line := range []string{"not json\n", "{}\n", "{\"Type\":3}\n"} {
		if m, err := NewConn(bytes.NewBufferString(line)).Receive(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%q: got %+v, %v; want an error", line, m, err)
		}
	}
	if err := NewConn(&bytes.Buffer{}).Send(Message{Type: Fatal, Text: strings.Repeat("x", maxLine)}); err == nil {
		t.Error("a message that is too long: no error")
	}
}
