// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/check/libcheck"
	"github.com/gpurdma/gpurdma/p2p/checks"
)

// Each check has a page, which is written from the check itself, and there are no other pages.
// `make reference` writes them.
func TestRemedyPages(t *testing.T) {
	referencetest.Document(t, remedyPages+"README.md", []byte(remedyIndex()), *update)
	var want []string
	for _, c := range checks.All() {
		referencetest.Document(t, remedyPage(c.ID), []byte(remedyText(t, c)), *update)
		want = append(want, c.ID+".md")
	}
	referencetest.OnlyThese(t, remedyPages, "", append(want, "README.md"))
}

// A page says the same of a shell's characters in a parameter as the report.
func TestRemedyPagesQuote(t *testing.T) {
	for _, c := range checks.All() {
		if strings.Contains(c.Fix.Command, "disable_acs_redir=") != strings.Contains(remedyText(t, c), "GRUB_CMDLINE_LINUX=\"… 'pci=…'\"") {
			t.Errorf("%s: %s", c.ID, remedyText(t, c))
		}
	}
}

func remedyIndex() string {
	var b strings.Builder
	b.WriteString(referencetest.Written + `# Checks and remedies

A page for each check of ` + "`p2pcheck`" + `: why it matters, how to see by hand what it reads, what to change, and
how to verify the change. ` + "`p2pcheck explain ID`" + ` prints the same in short, and names the page. A report prints the remedy
that fits what was found on the machine, which can differ from the usual one here.
[The checks](../../reference/p2pcheck/checks.md) says how they are judged.
`)
	family := ""
	for _, c := range checks.All() {
		if c.Family() != family {
			family = c.Family()
			fmt.Fprintf(&b, "\n## %s\n\n| check | at worst |\n|---|---|\n", family)
		}
		fmt.Fprintf(&b, "| [%s](%s.md): %s | %v |\n", c.ID, c.ID, cell(c.Title), c.Worst)
	}
	return b.String()
}

// cell is a text in a table of Markdown.
func cell(text string) string { return strings.ReplaceAll(escaped(text), "|", "\\|") }

// escaped is a text in Markdown, in which no character means anything.
func escaped(text string) string {
	return strings.NewReplacer("*", "\\*", "<", "\\<", "[", "\\[").Replace(text)
}

// places are the names in capitals that commands have.
var places = []struct{ name, means string }{
	{"GPU", "the GPU's PCI address, such as 0000:03:00.0"},
	{"NIC", "the RDMA device, such as mlx5_0"},
	{"FUNCTION", "the PCI address of the GPU or the NIC"},
	{"PORT", "the PCI address of a bridge above the GPU or the NIC"},
	{"PORTS", "PCI addresses of bridges, with `;` between them"},
	{"NETDEV", "the network device of the NIC, such as eth0"},
	{"DEVICE", "the device's address or name"},
	{"GROUP", "the path of the control group, which the first command prints"},
	{"HOST", "the host on which `dmabuf-reg serve` runs"},
	{"FILE", "a file of your choice, or the one that the report names"},
	{"ID", "the GPU's device ID in hexadecimal, such as 56a0"},
	{"LEVEL", "a distance by NCCL's letters, such as PHB or SYS"},
	{"ADDRESS", "an address of the NIC's network"},
	{"USER", "the user who runs the program"},
}

// placesIn explains the names that the commands have.
func placesIn(commands string) string {
	var found []string
	for _, p := range places {
		if regexp.MustCompile(`(^|[^A-Z_0-9])` + p.name + `($|[^A-Z_0-9])`).MatchString(commands) {
			found = append(found, "`"+p.name+"` is "+p.means)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "\n" + strings.Join(found, "; ") + ".\n"
}

// kinds are what a remedy's command is for, by its form.
var kinds = []struct {
	form  *regexp.Regexp
	means string
}{
	{regexp.MustCompile(`^CONFIG_`), "This is an option of the kernel's configuration. It takes a kernel that is built with it."},
	{regexp.MustCompile(`^pci=disable_acs_redir=`), "This is a parameter for the kernel's command line. It takes effect with the next boot. With several ports it needs quotes of its own in GRUB's configuration: `GRUB_CMDLINE_LINUX=\"… 'pci=…'\"`."},
	{regexp.MustCompile(`^(pci|iommu|iommu\.passthrough|i915\.force_probe|xe\.\w+)=`), "This is a parameter for the kernel's command line. It takes effect with the next boot."},
	{regexp.MustCompile(`^options `), "This is a line for a file in `/etc/modprobe.d`. It takes effect when the module is loaded the next time."},
	{regexp.MustCompile(`^[A-Z_]+=`), "This is a variable for the environment of the program."},
	{regexp.MustCompile(`^--(cap-add|device|shm-size)\b`), "This is an option of the command that starts the container."},
	{regexp.MustCompile(`^-global `), "This is an option of QEMU, on the host."},
	{regexp.MustCompile(`^(p2pcheck|dmabuf-reg|rdma_topo|nvidia-smi|nvidia_gpu_tools\.py|dmesg) |^sudo p2pcheck$`), ""},
	{regexp.MustCompile(`^ulimit `), "This changes the limit of the shell and of the programs that it starts."},
	{regexp.MustCompile(`^usermod `), "This takes effect with the user's next login."},
	{regexp.MustCompile(`^(modprobe|rdma|echo|setpci|ip|dcb|sysctl) `), "This changes the running system and lasts until the next boot, unless your system's configuration repeats it. Most of these commands need root."},
}

func kindOf(t *testing.T, command string) string {
	t.Helper()
	for _, k := range kinds {
		if k.form.MatchString(command) {
			return k.means
		}
	}
	t.Errorf("what kind of command is %q? Add it to kinds", command)
	return ""
}

func block(language, commands string) string {
	return "\n```" + language + "\n" + commands + "\n```\n"
}

// remedyText is the page of a check.
func remedyText(t *testing.T, c *check.Check) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s# %s: %s\n\n%s\n", referencetest.Written, c.ID, escaped(c.Title), escaped(c.Why))
	b.WriteString("\n| | |\n|---|---|\n")
	if c.Expect != "" {
		fmt.Fprintf(&b, "| expected | %s |\n", cell(c.Expect))
	}
	if c.Worst == p2p.ResultFail {
		b.WriteString("| at worst | fail: the exit status is 1 |\n")
	} else {
		b.WriteString("| at worst | warn: the exit status does not change |\n")
	}
	if len(c.Links) == 0 {
		b.WriteString("| answers | no link of a pair: it changes no verdict |\n")
	} else {
		var links []string
		for _, l := range c.Links {
			links = append(links, fmt.Sprintf("`%v` (%s)", l, l.Claim()))
		}
		fmt.Fprintf(&b, "| answers | [links](../../reference/p2pcheck/chain.md) of pairs: %s |\n", strings.Join(links, ", "))
	}
	if c.ByHand != "" {
		b.WriteString("\n## See it by hand\n" + block("sh", c.ByHand) + placesIn(c.ByHand))
	}
	if rows := logLines(c.ID); rows != "" {
		b.WriteString("\n## Lines of the kernel's log\n\nThe check looks for these lines (regular expressions), in `/dev/kmsg`:\n\n" + rows)
	}
	if all := libcheck.Variables(c.ID); len(all) > 0 {
		b.WriteString("\n## Variables\n\n| variable | what it does | default | source |\n|---|---|---|---|\n")
		for _, v := range all {
			name := "`" + v.Name + "` of " + v.Library
			if v.Since != "" {
				name += ", since " + v.Since
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, cell(v.Effect), cell(v.Default), cell(v.Source))
		}
	}
	b.WriteString("\n## What to change\n\n")
	switch {
	case c.Fix == (chain.Remedy{}):
		b.WriteString("The check has no usual remedy: it says what is there. If one fits the machine, the report prints it.\n")
	default:
		b.WriteString(strings.ToUpper(c.Fix.Change[:1]) + escaped(c.Fix.Change[1:]) + ".\n")
	}
	if c.Fix.Command != "" {
		b.WriteString(block("", c.Fix.Command) + placesIn(c.Fix.Command))
		if means := kindOf(t, c.Fix.Command); means != "" {
			b.WriteString("\n" + means + "\n")
		}
	}
	if c.Fix.Weakens != "" {
		b.WriteString("\n**What it weakens:** " + escaped(c.Fix.Weakens) + ".\n")
	}
	if c.Fix != (chain.Remedy{}) {
		b.WriteString("\n## Verify the change\n" + verified(c))
	}
	fmt.Fprintf(&b, "\n## Sources\n\n%s\n", escaped(c.Ref))
	return b.String()
}

// logLines are a table of what a check looks for in the kernel's log.
func logLines(id string) string {
	var b strings.Builder
	for _, p := range p2p.Patterns {
		if p.Check == id {
			fmt.Fprintf(&b, "| `%s` | %s | %v |\n", strings.ReplaceAll(p.Match.String(), "|", "\\|"), cell(p.Means), p.Result)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "| line | what it means | at worst |\n|---|---|---|\n" + b.String()
}

// ofProgram reports a check that judges the program that runs, not the machine.
func ofProgram(c *check.Check) bool {
	return slices.Contains([]string{"LIM", "LIB", "CTR"}, c.Family()) ||
		slices.Contains([]string{"GPU-RENDER-PERM", "NIC-UVERBS", "NIC-PROVIDER-LIB", "NET-GID-NS", "ENV-CONTAINER", "ENV-NETNS"}, c.ID)
}

// verified is how one sees that a change has helped.
func verified(c *check.Check) string {
	if slices.Equal(c.Links, []chain.Link{chain.Proof}) {
		return block("sh", "sudo p2pcheck --live -v") + "\nAmong the checks `" + c.ID + "` has `pass`.\n"
	}
	commands, says := "sudo p2pcheck -v", "Among the checks `"+c.ID+"` has `pass`"
	if ofProgram(c) {
		commands, says = "p2pcheck -v", "Run it as the program's user, in its container, and with its environment: the check is of these. "+says
	}
	if c.Worst == p2p.ResultWarn {
		says += ", or is `skip` if it no longer applies"
	}
	says += "."
	var links []string
	for _, l := range c.Links {
		if l != chain.Proof && l != chain.Log {
			links = append(links, "`"+l.String()+"`")
		}
	}
	if len(links) > 0 {
		word := "link"
		if len(links) > 1 {
			word = "links"
		}
		commands += "\nsudo p2pcheck why GPU NIC\nsudo p2pcheck --live --gpu GPU --nic NIC"
		says += " `why` prints the " + word + " " + strings.Join(links, ", ") + " of the pair, and `--live` proves the pair by a registration and a transfer."
	}
	if slices.Contains(c.Links, chain.Log) {
		says += " Lines that the log already has stay there until the next boot."
	}
	return block("sh", commands) + "\n" + says + "\n"
}
