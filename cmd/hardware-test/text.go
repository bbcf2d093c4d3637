// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
)

// shownUnread is how many names of files the text has: the JSON has all.
const shownUnread = 5

// text writes the report for people.
func (r *report) text(w io.Writer) error {
	var b strings.Builder
	user := "root"
	if !r.Root {
		user = "a user who is not root"
	}
	line := func(format string, args ...any) {
		fmt.Fprintln(&b, human.Fold(fmt.Sprintf(format, args...), "", "    "))
	}
	line("hardware test of %s, %s, Linux %s %s, as %s", r.Version, r.Date, r.Kernel, r.Arch, user)
	if r.Snapshot.Error != "" {
		line("snapshot: none: %s", r.Snapshot.Error)
	} else {
		line("snapshot: %s: %d files; %d could not be read%s", r.Snapshot.File, r.Snapshot.Files, len(r.Snapshot.Unreadable), names(r.Snapshot.Unreadable))
	}
	devices(&b, "GPU", r.GPUs)
	devices(&b, "RDMA NIC", r.NICs)
	subject := ""
	for _, row := range r.Rows {
		if row.Subject != subject {
			subject = row.Subject
			fmt.Fprintf(&b, "\n%s\n", subject)
		}
		row.text(&b)
	}
	if len(r.NotDone) > 0 {
		fmt.Fprint(&b, "\nNot done\n")
		for _, n := range r.NotDone {
			fmt.Fprintln(&b, human.Fold(n.What, "  ", "    "))
			fmt.Fprintln(&b, human.Fold("because: "+n.Why, "      ", "        "))
		}
	}
	if len(r.Tests) > 0 {
		fmt.Fprint(&b, "\nTests of the runtimes\n")
	}
	for _, t := range r.Tests {
		text := fmt.Sprintf("%s: %d passed, %d skipped, %d failed (%s)", t.Runtime, t.Passed, t.Skipped, len(t.Failed), t.Log)
		if len(t.Failed) > 0 {
			text += ": " + strings.Join(t.Failed, ", ")
		}
		if t.Error != "" {
			text += "; " + t.Error
		}
		fmt.Fprintln(&b, human.Fold(text, "  ", "    "))
	}
	fmt.Fprintln(&b)
	line("%s", r.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

// text writes one comparison.
func (r row) text(b *strings.Builder) {
	or := func(s, none string) string {
		if s == "" {
			return none
		}
		return s
	}
	fmt.Fprintln(b, human.Fold(fmt.Sprintf("%s: %s", r.Question, r.Compared), "  ", "    "))
	for _, part := range [][3]string{{"predicted", or(r.Predicted, "nothing"), r.Because}, {"answered", or(r.Answered, "nothing"), r.Seen}} {
		text := part[0] + " " + part[1]
		if part[2] != "" {
			text += ": " + part[2]
		}
		fmt.Fprintln(b, human.Fold(text, "      ", "        "))
	}
}

// summary is the result in one paragraph.
func (r *report) summary() string {
	t := r.Tally
	counts := fmt.Sprintf("%s compared: %d agree, %d fit, %d disagree; %d answered and not predicted, %d not answered",
		human.Plural(t.Agrees+t.Fits+t.Disagrees, "prediction"), t.Agrees, t.Fits, t.Disagrees, t.NotPredicted, t.NotAnswered)
	switch r.Result {
	case resultNothing:
		return "RESULT: nothing was compared, so this run neither passed nor failed. " + counts
	case resultDisagrees:
		return "RESULT: a prediction is wrong. " + counts
	case resultTests:
		return "RESULT: tests of a runtime failed. " + counts
	}
	return "RESULT: no prediction is wrong. " + counts
}

func devices(b *strings.Builder, what string, all []device) {
	if len(all) == 0 {
		fmt.Fprintf(b, "%s: none\n", what)
	}
	for _, d := range all {
		text := fmt.Sprintf("%s: %s", what, d.Name)
		if d.Driver != "" {
			text += " of driver " + d.Driver
		}
		if d.Model != "" {
			text += ", " + d.Model
		}
		fmt.Fprintln(b, human.Fold(text, "", "    "))
	}
}

// names lists files behind a colon.
func names(files []string) string {
	if len(files) == 0 {
		return ""
	}
	return ": " + human.First(files, shownUnread)
}
