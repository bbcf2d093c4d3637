// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fake is a p2pcheck that ends with the first line of the file status, and writes a run with the words of the
// file run, unless that is empty. It says what else it was asked.
const fake = `#!/bin/sh
here=${0%/*}
case $1 in
--json)
	words=$(cat "$here/run")
	[ -z "$words" ] || printf '{\n  "exit_status": %s,\n  "result": "%s"\n}\n' "$(cat "$here/status")" "$words" >"$3"
	exit "$(cat "$here/status")" ;;
*) echo "asked: $*" ;;
esac
`

// record keeps the last run whatever it found, and before it the last one that looked at the machine.
func TestRecord(t *testing.T) {
	programs, state := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "p2pcheck"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		status         int
		run            string
		want           int    // of record
		last, previous string // the words of the two files, "" where there is none
		says           string
	}{
		{3, "one", 3, "one", "", "asked: report last.json"},
		{1, "two", 1, "two", "one", "asked: diff previous.json last.json"},
		{0, "three", 0, "three", "two", "asked: diff previous.json last.json"},
		// It could not look: the old run is no answer to how the machine is.
		{2, "wrong", 2, "wrong", "three", "could not look at the machine:\n{"},
		{2, "wrong", 2, "wrong", "three", "\"result\": \"wrong\""},
		{0, "four", 0, "four", "three", "asked: diff previous.json last.json"},
		// It crashed.
		{139, "", 139, "", "four", "has no last.json"},
		{0, "", 2, "", "four", "has no last.json"},
		{0, "five", 0, "five", "four", "asked: report last.json"},
	} {
		for name, text := range map[string]string{"status": strconv.Itoa(step.status), "run": step.run} {
			if err := os.WriteFile(filepath.Join(programs, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "./record.sh")
		cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+state, "P2PCHECK="+filepath.Join(programs, "p2pcheck"))
		r := try(t, cmd)
		if r.status != step.want || !strings.Contains(r.out, step.says) {
			t.Errorf("step %d: status %d, want %d; it says %q, want %q", i, r.status, step.want, r.out, step.says)
		}
		for name, want := range map[string]string{"last.json": step.last, "previous.json": step.previous} {
			text, err := os.ReadFile(filepath.Join(state, name))
			if want == "" && err == nil || want != "" && !strings.Contains(string(text), fmt.Sprintf("%q", want)) {
				t.Errorf("step %d: %s is %q (%v), want %q", i, name, text, err, want)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "./record.sh")
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+state+"/none")
	if r := try(t, cmd); r.status != 2 {
		t.Errorf("without a directory: status %d", r.status)
	}
}
