// SPDX-License-Identifier: Apache-2.0

package pagetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Step is a command of a page, and what the page says that it prints.
type Step struct {
	Line    int    // of the page
	Prompt  string // "$" or "#"
	Command string
	Want    []string // lines
}

// Left is a line of a page that stands for lines which it leaves out.
const Left = "…"

// Steps are the commands in the blocks of the language "console". A line that begins with "$ " or "# " is
// a command. The lines below it are what it prints.
func (p Page) Steps() (out []Step) {
	for _, b := range p.Of("console") {
		first := len(out)
		lines := strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n")
		for i := 0; i < len(lines); i++ {
			line := lines[i]
			if prompt, command, ok := strings.Cut(line, " "); ok && (prompt == "$" || prompt == "#") {
				s := Step{Line: b.Line + i, Prompt: prompt, Command: command}
				for strings.HasSuffix(s.Command, `\`) && i+1 < len(lines) {
					i++
					s.Command = strings.TrimSuffix(s.Command, `\`) + strings.TrimSpace(lines[i])
				}
				out = append(out, s)
				continue
			}
			if len(out) > first {
				out[len(out)-1].Want = append(out[len(out)-1].Want, line)
			}
		}
	}
	return out
}

var (
	times   = regexp.MustCompile(`\b(\d+(\.\d+)?(h|ms|µs|ns|m|s))+`)
	rates   = regexp.MustCompile(`\b\d+(\.\d+)? [kMG]?B/s`)
	keys    = regexp.MustCompile(`\b0x[0-9a-f]+\b`)
	seeds   = regexp.MustCompile(`\bseed \d+`)
	kernels = regexp.MustCompile(`\b\d+\.\d+\.\d+[+~-][+~.\-\w]*`)
	inodes  = regexp.MustCompile(`\binode \d+`)
)

// normal replaces the words that differ from run to run.
func normal(text string) string {
	text = rates.ReplaceAllString(text, "RATE")
	text = times.ReplaceAllString(text, "TIME")
	text = keys.ReplaceAllString(text, "KEY")
	text = seeds.ReplaceAllString(text, "SEED")
	text = inodes.ReplaceAllString(text, "INODE")
	text = kernels.ReplaceAllString(text, "KERNEL")
	return strings.Join(strings.Fields(text), " ")
}

// Check compares an output with the page, word by word. Words that differ from run to run (times, rates,
// keys, seeds, the release of the kernel) match any other of their kind. A step without lines takes any
// output.
func (s Step) Check(out string) error {
	if len(s.Want) == 0 {
		return nil
	}
	var parts []string
	part := ""
	for _, line := range append(s.Want, Left) {
		if strings.TrimSpace(line) != Left {
			part += line + "\n"
			continue
		}
		parts = append(parts, normal(part))
		part = ""
	}
	rest := " " + normal(out) + " "
	for i, want := range parts {
		at := strings.Index(rest, " "+want+" ")
		switch {
		case want == "":
			continue
		case at < 0:
			return fmt.Errorf("`%s` of line %d does not print, behind what was found before:\n%s\nbut:\n%s", s.Command, s.Line, want, out)
		case i == 0 && at > 0:
			return fmt.Errorf("`%s` of line %d begins with something else:\n%s", s.Command, s.Line, out)
		}
		rest = " " + rest[at+len(want)+2:]
		if i == len(parts)-1 && strings.TrimSpace(rest) != "" && s.Want[len(s.Want)-1] != Left {
			return fmt.Errorf("`%s` of line %d prints more:\n%s", s.Command, s.Line, rest)
		}
	}
	return nil
}

var inGuest = regexp.MustCompile(`^make vm\b.*\bCMD='([^']*)'$`)

// Guest returns the command that a step runs in the virtual machine, "" if it runs none there.
func (s Step) Guest() string {
	if m := inGuest.FindStringSubmatch(s.Command); m != nil {
		return m[1]
	}
	return ""
}

// Run runs a command by the shell in dir, with the programs in dir/bin before all others. Its status may be
// anything.
func Run(t testing.TB, command, dir string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", command) // a cleanup may run it
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH")), env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(out)
}

// Program makes a program of dir that runs the test binary with a variable set, by which the binary knows that it
// is the program.
func Program(t testing.TB, dir, name, variable string) {
	t.Helper()
	self, err := os.Executable()
	file := filepath.Join(dir, name)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", variable, self)), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
