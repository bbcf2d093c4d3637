// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTranscript runs the commands of the transcript in docs/fleet.md and compares what they print: behind "#" as root,
// behind "$" as the user of the jobs. A line "(gpu07 becomes MACHINE)" makes the node that machine of the corpus.
func TestTranscript(t *testing.T) {
	Need(t)
	var files []string
	for i := range 8 {
		files = append(files, fmt.Sprint("/dev/nvidia", i))
	}
	devices(t, files...)
	Becomes(t, "gpu07", Machine(t, "hgx"))
	k := &Cluster{t: t}
	k.programs()
	// The commands of the document name no machine: it is their own.
	if err := os.MkdirAll("/run/commands", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p2pcheck", "slurm-p2p"} {
		skip := map[string]string{"p2pcheck": " --skip all"}[name]
		script(t, "/run/commands/"+name, "exec /opt/"+name+` "$@" --root /srv/gpu07`+skip)
	}
	gres, err := k.Root("sh", "-c", "/run/commands/p2pcheck --json | /run/commands/slurm-p2p gres --node gpu07")
	if err != nil {
		t.Fatal(err, gres)
	}
	k = Start(t, Config{Nodes: []string{"gpu07"}, Lines: SlurmConf(t), Gres: strings.Split(gres, "\n"), GPUs: 8, Conf: P2PCheckConf(t)})
	k.Until("there is a plan", func() bool { _, err := os.Stat("/run/p2pcheck/gpu07.json"); return err == nil })
	lines := Documented(t, "fleet.md", "transcript")
	for i := 0; i < len(lines); {
		line := lines[i]
		i++
		if machine, ok := strings.CutPrefix(line, becomes); ok {
			Becomes(t, "gpu07", Machine(t, strings.TrimSuffix(machine, ")")))
			continue
		}
		run := k.AliceWith
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			if command, ok = strings.CutPrefix(line, "# "); !ok {
				t.Fatalf("%q is no command", line)
			}
			run = k.RootWith
		}
		want := ""
		for ; i < len(lines) && !isCommand(lines[i]); i++ {
			want += lines[i] + "\n"
		}
		// A state comes with the next health check.
		got, last := "", ""
		k.Until(command+" prints what the document has:\n"+want, func() bool {
			// srun's remarks on the queue are left out: they depend on the time.
			got, _ = run([]string{"PATH=/run/commands:/usr/sbin:/usr/bin"}, "sh", "-c", "{ "+command+"; } 2>&1 | grep -v '^srun: job '")
			if got != want && got != last {
				t.Logf("%s\n%s", command, got)
			}
			last = got
			return got == want
		})
	}
}

const becomes = "(gpu07 becomes "

func isCommand(line string) bool {
	return strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, becomes)
}
