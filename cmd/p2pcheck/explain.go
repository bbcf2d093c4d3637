// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// explanation describes a check, whatever it finds.
type explanation struct {
	ID       string      `json:"id"`       // the ID of the check: "KRN-NUMA-BAL"
	Title    string      `json:"title"`    // what holds if the check passes
	Why      string      `json:"why"`      // why that matters
	Expected string      `json:"expected"` // the value or state that lets the check pass
	Worst    string      `json:"worst"`    // the worst that the check finds: `fail` or `warn`
	Links    []string    `json:"links"`    // the links of pairs that the check answers
	Remedy   *result.Fix `json:"remedy"`   // what to change; null without a remedy
	Ref      string      `json:"ref"`      // where the rule comes from
	ByHand   []string    `json:"by_hand"`  // the commands by which a person reads what the check reads
	Page     string      `json:"page"`     // the page of the documents that describes the check, as a path in the project's repository
	URL      string      `json:"url"`      // the address of the page at the program's version, or at the newest one where that is not known
}

// remedyPages is the directory of the documents that has a page for each check, which a test writes from
// the same data.
const remedyPages = "docs/how-to/remedies/"

// remedyPage is the document of a check.
func remedyPage(id string) string { return remedyPages + id + ".md" }

// repository is the project's, at its home.
const repository = "https://github.com/gpurdma/gpurdma"

// release is the version of a program that was built from a tag. A "~" stands where the tag has "-".
var release = regexp.MustCompile(`^\d+\.\d+\.\d+(~[0-9A-Za-z.]+)?$`)

// remedyURL is the address of the document of a check at the version that a program has, or at its revision, or if
// neither is known there, at the newest one: the page is in no package.
func remedyURL(id, version, revision string) string {
	at := "HEAD"
	switch {
	case release.MatchString(version):
		at = "v" + strings.Replace(version, "~", "-", 1)
	case revision != "unknown" && revision != "":
		at = revision
	}
	return repository + "/blob/" + at + "/" + remedyPage(id)
}

// byHand are the commands of a check, one an element.
func byHand(c *check.Check) []string {
	if c.ByHand == "" {
		return []string{}
	}
	return strings.Split(c.ByHand, "\n")
}

// explainResult is the output of explain.
type explainResult struct {
	Checks []explanation `json:"checks"` // the checks that the command line names, or all
}

func (explainResult) status() int { return cli.ExitOK }

func (a *app) explain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [ID]...",
		Short: "Print the meaning of checks, the reason for each, and the remedy of a failure",
		Long:  "explain prints the checks with these IDs or of these families (\"NET\"); without an argument it prints all checks. Each has a page in the documents, which says how to see by hand what the check reads, and how to verify a change.",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return append(checkFamilies(), checkNames()...), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, ids []string) error {
			a.reached = true
			found, err := explained(ids)
			if err != nil {
				return a.end("explain", nil, err)
			}
			return a.end("explain", found, nil)
		},
	}
}

func explained(ids []string) (explainResult, error) {
	r := explainResult{Checks: []explanation{}}
	for _, id := range ids {
		if !slices.ContainsFunc(checks.All(), func(c *check.Check) bool { return isCalled(c, id) }) {
			return r, &cli.UsageError{Err: unknownCheck(id)}
		}
	}
	for _, c := range checks.All() {
		if len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return isCalled(c, id) }) {
			continue
		}
		e := explanation{c.ID, c.Title, c.Why, c.Expect, c.Worst.String(), result.LinksOf(c), nil, c.Ref, byHand(c), remedyPage(c.ID), remedyURL(c.ID, version, revision)}
		if c.Fix != (chain.Remedy{}) {
			e.Remedy = &result.Fix{Change: c.Fix.Change, Command: c.Fix.Command, Weakens: c.Fix.Weakens}
		}
		r.Checks = append(r.Checks, e)
	}
	return r, nil
}

func (r explainResult) text(w io.Writer, a *app) error {
	var b strings.Builder
	for i, e := range r.Checks {
		if i > 0 {
			b.WriteString("\n")
		}
		line := func(label, text string) {
			fmt.Fprintln(&b, human.Fold(text, "  "+label, "  "+strings.Repeat(" ", len(label))))
		}
		fmt.Fprintln(&b, human.Fold(e.Title, e.ID+": ", "  "))
		line("", e.Why)
		if e.Expected != "" {
			line("expected: ", e.Expected)
		}
		line("at worst: ", e.Worst)
		if len(e.Links) > 0 {
			line("answers: ", strings.Join(e.Links, ", "))
		} else {
			line("", "bears on no pair's verdict")
		}
		if e.Remedy != nil {
			render.Remedy(&b, a.style(), &result.Remedy{Change: e.Remedy.Change, Command: e.Remedy.Command, Weakens: e.Remedy.Weakens}, nil)
		}
		for i, command := range e.ByHand { // a command is not folded
			label := "by hand: "
			if i > 0 {
				label = strings.Repeat(" ", len(label))
			}
			fmt.Fprintln(&b, "  "+label+command)
		}
		line("see: ", e.Ref)
		fmt.Fprintln(&b, "  page: "+e.URL) // not folded
	}
	_, err := io.WriteString(w, b.String())
	return err
}
