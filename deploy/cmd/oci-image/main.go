// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/gpurdma/gpurdma/internal/wholefile"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oci-image:", err)
		os.Exit(1)
	}
}

// pairs is a flag of NAME=VALUE that may be given often.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is no NAME=VALUE", s)
	}
	p[name] = value
	return nil
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("oci-image", flag.ContinueOnError)
	output := flags.String("o", "", "the archive")
	ref := flags.String("ref", "latest", "the name of the image in the archive")
	user := flags.String("user", "65532:65532", "whom the program runs as")
	entry := flags.String("entrypoint", "", "the program, by its path in the image")
	port := flags.String("port", "", "a port that it listens on (\"9838/tcp\")")
	labels, env := pairs{}, pairs{}
	flags.Var(labels, "label", "a label, NAME=VALUE")
	flags.Var(env, "env", "a variable of the environment, NAME=VALUE")
	if err := flags.Parse(args); err != nil {
		return err
	}
	created, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	if *output == "" || flags.NArg() == 0 {
		return errors.New("-o FILE and at least one PLATFORM=DIRECTORY are needed")
	}
	config := v1.ImageConfig{User: *user, Labels: labels, WorkingDir: "/"}
	if *entry != "" {
		config.Entrypoint = []string{*entry}
	}
	if *port != "" {
		config.ExposedPorts = map[string]struct{}{*port: {}}
	}
	for _, name := range sorted(env) {
		config.Env = append(config.Env, name+"="+env[name])
	}
	l := newLayout(created)
	for _, arg := range flags.Args() {
		platform, dir, ok := strings.Cut(arg, "=")
		system, arch, parts := strings.Cut(platform, "/")
		if !ok || !parts {
			return fmt.Errorf("%q is no OS/ARCHITECTURE=DIRECTORY", arg)
		}
		if err := l.add(v1.Platform{OS: system, Architecture: arch}, dir, config); err != nil {
			return err
		}
	}
	var d digest.Digest
	if err := wholefile.Write(*output, 0o644, func(f io.Writer) (err error) {
		d, err = l.write(f, *ref)
		return err
	}); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, *output, d)
	return err
}

// epoch is when the image was made: as reproducible builds say it, or never.
func epoch(seconds string) (time.Time, error) {
	if seconds == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}
