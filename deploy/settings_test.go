// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readers are the files that read /etc/p2pcheck.conf, by their headings in the document of the settings.
var readers = map[string]string{
	"The health check for Slurm": "slurm/p2pcheck-health.sh", "The TaskProlog for Slurm": "slurm/p2pcheck-task-prolog.sh",
	"The timer": "packaging/record.sh", "The agent": "systemd/p2pcheck-agent.service",
}

var (
	settingInScript = regexp.MustCompile(`\$\{(P2PCHECK[A-Z_]*)(?::-([^}]*))?\}`)
	settingInUnit   = regexp.MustCompile(`(?m)^Exec.*\$(P2PCHECK[A-Z_]*)`)
	settingInPage   = regexp.MustCompile("(?m)^\\| `(P2PCHECK[A-Z_]*)` \\| (?:`([^`|]*)` )?\\|")
	settingInConf   = regexp.MustCompile(`(?m)^#?(P2PCHECK[A-Z_]*)="([^"\n]*)"$`)
)

// settings are the names that a text has, with their defaults.
func settings(in *regexp.Regexp, text string) map[string]string {
	all := map[string]string{}
	for _, m := range in.FindAllStringSubmatch(text, -1) {
		all[m[1]] = ""
		if len(m) > 2 {
			all[m[1]] = m[2]
		}
	}
	return all
}

// docs/reference/settings.md has the settings that each script and each unit reads, with the defaults, and no others. So has
// the file of the package, but for that which names the file itself.
func TestSettings(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	page, all := read("../docs/reference/settings.md"), map[string]bool{}
	sections := strings.Split(page, "\n## ")[1:]
	for _, section := range sections {
		heading, _, _ := strings.Cut(section, "\n")
		name, ok := readers[heading]
		if !ok {
			t.Errorf("nothing reads the settings of %q", heading)
			continue
		}
		text := read(name)
		want := settings(settingInScript, text)
		if strings.HasSuffix(name, ".service") {
			want = settings(settingInUnit, text)
		}
		if got := settings(settingInPage, section); len(want) == 0 || !maps.Equal(got, want) {
			t.Errorf("%s: the document has %q, and %s has %q", heading, got, name, want)
		}
		for s := range want {
			all[s] = true
		}
	}
	if len(sections) != len(readers) {
		t.Errorf("the document has %d tables, and %d files read settings", len(sections), len(readers))
	}
	delete(all, "P2PCHECK_CONF")
	conf := read("packaging/p2pcheck.conf")
	packaged := settings(settingInConf, conf)
	if got, want := slices.Sorted(maps.Keys(packaged)), slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("packaging/p2pcheck.conf has %q, want %q", got, want)
	}
	// The document has the values of the two settings that the packaged file makes.
	for _, name := range []string{"P2PCHECK_ARGS", "P2PCHECK_AGENT_ARGS"} {
		if !strings.Contains(conf, "\n"+name+"=") || !strings.Contains(page, "In the packaged file `"+packaged[name]+"` |") {
			t.Errorf("the document does not have %s of the packaged file: %s", name, packaged[name])
		}
	}
}
