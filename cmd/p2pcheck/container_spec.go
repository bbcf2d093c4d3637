// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/check/libcheck"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/variables"
)

// notJudged is the error of a specification whose variables this machine does not judge, or not all of
// them: it says which, why, and what to do.
func (a *app) notJudged(s check.Subject, found []check.Finding) error {
	if a.spec == "" {
		return nil
	}
	if why := libcheck.NotJudged(s.GPUs, s.NICs); why != "" {
		return &cli.Unavailable{Err: fmt.Errorf("--container-spec %s: the variables of its containers were not judged: %s; run %s on the container's node, or with --snapshot of that node", a.spec, why, program)}
	}
	var errs []error
	for _, f := range found {
		if f.Result != p2p.ResultSkip {
			continue
		}
		for _, v := range libcheck.Variables(f.Check.ID) {
			for _, c := range s.Containers {
				if _, set := c.Env[v.Name]; set || slices.Contains(c.Unread, v.Name) {
					errs = append(errs, &cli.Unavailable{Err: fmt.Errorf("--container-spec %s: %s of %s was not judged: %s; first change what the pairs need", a.spec, v.Name, strings.TrimSpace("container "+c.Name), f.Read)})
				}
			}
		}
	}
	return errors.Join(errs...)
}

// skipsVariables reports whether --skip leaves out each check of variables.
func (a *app) skipsVariables() bool {
	return !slices.ContainsFunc(checks.All(), func(c *check.Check) bool {
		return len(libcheck.Variables(c.ID)) > 0 && !slices.ContainsFunc(a.skip, func(skip string) bool { return skip == "all" || isCalled(c, skip) })
	})
}

// containers reads the containers of the file that --container-spec names. The checks judge their
// variables in place of this process's.
func (a *app) containers() ([]variables.Container, error) {
	switch {
	case a.spec == "":
		return nil, nil
	case a.pid != "":
		return nil, errors.New("--container-spec and --pid: the variables are either of the containers or of the process")
	case a.skipsVariables():
		return nil, fmt.Errorf("--container-spec and --skip %s: --skip leaves out the checks that judge the containers' variables", strings.Join(a.skip, ","))
	}
	f, err := os.Open(a.spec)
	if err != nil {
		return nil, fmt.Errorf("--container-spec: %w", err)
	}
	defer f.Close()
	all, err := variables.Containers(f)
	if err != nil {
		return nil, badFile{fmt.Errorf("--container-spec %s: %w", a.spec, err)}
	}
	return all, nil
}
