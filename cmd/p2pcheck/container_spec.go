// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/gpurdma/gpurdma/p2p/variables"
)

// containers reads the containers of the file that --container-spec names. The checks judge their
// variables in place of this process's.
func (a *app) containers() ([]variables.Container, error) {
	switch {
	case a.spec == "":
		return nil, nil
	case a.pid != "":
		return nil, errors.New("--container-spec and --pid: the variables are either of the containers or of the process")
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
